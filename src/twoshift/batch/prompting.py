"""Rows of a table as prompts of a language model: a column, or a template over several."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twoshift.errors import InvalidInput
from twoshift.generation import GenerationParams, GenerationRequest, Message

__all__ = ["Prompting", "Template"]

_WANTED = "the name of a column, or a text with columns in braces such as '{title}: {body}'"


@dataclass(frozen=True, slots=True)
class Template:
    """A text with columns in it."""

    parts: tuple[tuple[str, str | None], ...]  # a text, and the column that comes after it

    @classmethod
    def parse(cls, given: str, option: str, is_column: bool = False) -> Template:
        """`{column}` is its value, `{{` a brace; a lone name is a column, if it may be. Raises InvalidInput."""
        if is_column and "{" not in given and "}" not in given:
            return cls((("", given),))
        try:
            found = list(string.Formatter().parse(given))
        except ValueError as error:
            raise InvalidInput(option, given, f"{_WANTED} ({error})") from None
        for _, name, spec, conversion in found:
            if name is not None and (not name or spec or conversion):
                raise InvalidInput(option, given, _WANTED)
        return cls(tuple((text, name) for text, name, _, _ in found))

    @property
    def columns(self) -> tuple[str, ...]:
        """Each once."""
        return tuple(dict.fromkeys(name for _, name in self.parts if name is not None))

    def filled(self, row: Mapping[str, Any]) -> str | None:
        """The text for a row; None where a value is null."""
        if any(row[name] is None for name in self.columns):
            return None
        return "".join(text + ("" if name is None else _shown(row[name])) for text, name in self.parts)


@dataclass(frozen=True, slots=True)
class Prompting:
    """How a job's rows become requests."""

    prompt: Template
    system: Template | None
    params: GenerationParams
    adapter: str = ""  # by the name that the model has for it

    @property
    def columns(self) -> tuple[str, ...]:
        """That the templates have."""
        return tuple(dict.fromkeys((*self.prompt.columns, *(self.system.columns if self.system else ()))))

    def request(self, row: Mapping[str, Any]) -> GenerationRequest | None:
        """For a row; None where a value is null."""
        asked = self.prompt.filled(row)
        told = None if self.system is None else self.system.filled(row)
        if asked is None or (self.system is not None and told is None):
            return None
        system = () if told is None else (Message("system", told),)
        return GenerationRequest((*system, Message("user", asked)), self.params, adapter=self.adapter)


def _shown(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
