"""Instructor in its JSON modes."""

import instructor
import openai
from checks import FOX, URL, check, expect, version
from pydantic import BaseModel

version("instructor")


class Fox(BaseModel):
    """What is asked for."""

    colour: str


def asked(mode: instructor.Mode) -> None:
    client = instructor.from_openai(openai.OpenAI(base_url=f"{URL}/v1", api_key="none", timeout=300), mode=mode)
    found = client.chat.completions.create(model="smollm", messages=FOX, response_model=Fox, max_tokens=60,
                                           temperature=0, max_retries=2)  # fmt: skip
    expect(isinstance(found, Fox), found)


@check("Mode.JSON_SCHEMA")
def _() -> None:
    asked(instructor.Mode.JSON_SCHEMA)


@check("Mode.JSON: the request is taken and the answer is JSON")
def _() -> None:
    client = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", timeout=300)
    _, given = instructor.handle_response_model(Fox, mode=instructor.Mode.JSON, messages=list(FOX), model="smollm")
    given.pop("response_model", None)
    reply = client.chat.completions.create(**given, max_tokens=60)
    expect((reply.choices[0].message.content or "").lstrip().startswith("{"), reply)
