"""Texts that a model wants before each of its inputs, by name, as sentence-transformers keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twoshift.errors import InvalidInput
from twoshift.runtime.encoder.fields import Fields

__all__ = ["EncoderPrompts", "read_prompts"]


@dataclass(frozen=True, slots=True)
class EncoderPrompts:
    """The prompts of a model, and which one a row has that names none."""

    texts: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    default_name: str | None = None

    @property
    def default(self) -> str:
        """The text of the default prompt; mostly empty."""
        return self.texts[self.default_name] if self.default_name is not None else ""

    def chosen(self, asked: Mapping[str, Any], where: str) -> str:
        """The text that a row's `prompt` or `prompt_name` stands for; raises InvalidInput that names the row."""
        prompt, name = asked.get("prompt"), asked.get("prompt_name")
        if prompt is not None:
            if not isinstance(prompt, str):
                raise InvalidInput(f"{where}: prompt", prompt, "a string")
            return prompt
        if name is None:
            return self.default
        if not isinstance(name, str) or name not in self.texts:
            raise InvalidInput(f"{where}: prompt_name", name, self.accepted)
        return self.texts[name]

    @property
    def accepted(self) -> str:
        """The names that may be asked for."""
        return f"one of {', '.join(sorted(self.texts))}" if self.texts else "a model with prompts: this model has none"


def read_prompts(folder: Path) -> EncoderPrompts:
    """The `prompts` and `default_prompt_name` of config_sentence_transformers.json; raises InvalidInput."""
    config = Fields.read_if_there(folder / "config_sentence_transformers.json")
    prompts = config.inner("prompts")
    texts = {name: prompts.text(name) for name, _ in prompts.items()}
    default = config.text("default_prompt_name") or None
    if default is not None and default not in texts:
        accepted = (
            f"the name of a prompt in this file: {', '.join(sorted(texts))}"
            if texts
            else "no value, because this file defines no prompts"
        )
        raise InvalidInput(f"{config.path}: default_prompt_name", default, accepted)
    return EncoderPrompts(texts, default)
