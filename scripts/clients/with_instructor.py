"""Instructor in its JSON modes."""

import contextlib
import json
from typing import Literal

import instructor
import openai
from checks import FOX, URL, check, expect, version
from pydantic import BaseModel

version("instructor")


class Fox(BaseModel):
    """What is asked for."""

    colour: Literal["red", "blue"]


def client(mode: instructor.Mode) -> instructor.Instructor:
    """Over OpenAI's client."""
    return instructor.from_openai(openai.OpenAI(base_url=f"{URL}/v1", api_key="none", timeout=300), mode=mode)


@check("Mode.JSON_SCHEMA")
def _() -> None:
    made = client(instructor.Mode.JSON_SCHEMA)
    found = made.chat.completions.create(model="smollm", messages=FOX, response_model=Fox, max_tokens=60, temperature=0)
    expect(isinstance(found, Fox), found)


@check("Mode.JSON: the answer is a JSON object (smollm is too small to always follow the requested fields)")
def _() -> None:
    replies = []
    made = client(instructor.Mode.JSON)
    made.on("completion:response", replies.append)
    with contextlib.suppress(Exception):  # what it says of an answer that does not fit
        made.chat.completions.create(
            model="smollm", messages=FOX, response_model=Fox, max_tokens=120, temperature=0, max_retries=0
        )
    content = replies[0].choices[0].message.content
    json.JSONDecoder().raw_decode(content) if replies[0].choices[0].finish_reason == "stop" else None
    expect(content.lstrip().startswith("{"), content)
