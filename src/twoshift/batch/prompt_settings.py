"""Prompt settings of a language model's job."""

from __future__ import annotations

from typing import Annotated, Protocol

from twoshift.batch.prompting import Prompting, Template
from twoshift.declare import setting
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.generation import GenerationParams
from twoshift.values import EACH, contents, count, share, whole

__all__ = [
    "AnswerSchemaText",
    "MaxTokens",
    "PromptSettings",
    "PromptText",
    "SamplingSeed",
    "StopStrings",
    "SystemText",
    "Temperature",
    "TopP",
    "check_prompt",
    "prompting_of",
]

PromptText = Annotated[
    str | None,
    setting(
        "Prompt for a language model: the name of an input column, or a template such as '{title}: {body}'.",
        more="See [language models](llms.md).",
    ),
]
SystemText = Annotated[
    str | None, setting("System message for a language model; {column} inserts the value of an input column.")
]
MaxTokens = Annotated[int, setting("Maximum number of tokens per answer.", whole(most=10**6))]
Temperature = Annotated[float, setting("Sampling temperature; 0 always picks the most likely token.", count(zero=True))]
TopP = Annotated[
    float, setting("Top-p: sample only from the most likely tokens, up to this total probability.", share(zero=False))
]
SamplingSeed = Annotated[int | None, setting("Seed for the random sampling of tokens.", whole(-(2**63), 2**63 - 1))]
StopStrings = Annotated[
    tuple[str, ...],
    setting(
        "Stop string: an answer ends when the model generates this string. Repeat the option for several strings.", EACH
    ),
]
AnswerSchemaText = Annotated[
    str | None,
    setting(
        "File with a JSON schema for the answers; each property of the schema becomes an output column.",
        contents(),
        more="In a job file, give the schema itself, not a file. See [supported schemas](llm-serving.md#schemas).",
    ),
]
_NEED_A_PROMPT = ("system", "json_schema", "seed", "stop")


class PromptSettings(Protocol):
    """The settings of a job's prompts and sampling."""

    @property
    def text(self) -> str | None: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def prompt(self) -> str | None: ...
    @property
    def system(self) -> str | None: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def temperature(self) -> float: ...
    @property
    def top_p(self) -> float: ...
    @property
    def seed(self) -> int | None: ...
    @property
    def stop(self) -> tuple[str, ...]: ...
    @property
    def json_schema(self) -> str | None: ...
    @property
    def adapter(self) -> str | None: ...


def check_prompt(settings: PromptSettings) -> None:
    """Raises InvalidInput where the prompt cannot be read, or something is given that does not go with it."""
    if settings.prompt and (settings.text or settings.columns):
        raise Inapplicable(
            "prompt", settings.prompt, "with --text or --columns: for a language model, give only --prompt"
        )
    for name in _NEED_A_PROMPT:
        value = getattr(settings, name)
        if settings.prompt is None and value not in (None, ()):
            shown = ",".join(value) if isinstance(value, tuple) else value  # as the option has it
            raise Inapplicable(name, shown, "without --prompt")
    prompting = prompting_of(settings)
    if prompting is not None and not prompting.columns:
        raise InvalidInput("prompt", settings.prompt, "a template with at least one {column} in it")
    if settings.json_schema is not None:
        from twoshift.batch.json_answers import AnswerSchema  # slow to load: numpy

        AnswerSchema(settings.json_schema)


def prompting_of(settings: PromptSettings) -> Prompting | None:
    """How rows become prompts; None where the model is not a language model. Raises InvalidInput."""
    if settings.prompt is None:
        return None
    params = GenerationParams(
        may_shorten=True,
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        seed=settings.seed,
        stop=settings.stop,
        json_schema=settings.json_schema,
    )
    system = None if settings.system is None else Template.parse(settings.system, "system")
    prompt = Template.parse(settings.prompt, "prompt", is_column=True)
    return Prompting(prompt, system, params, settings.adapter or "")
