"""How a registered model is named: NAME, NAME:3, NAME@prod."""

from __future__ import annotations

import re
from dataclasses import dataclass

from twoshift.errors import InvalidInput

__all__ = ["ModelRef", "alias_ref", "checked_model_name", "parse_ref", "version_ref"]

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_ALIAS = r"[A-Za-z][A-Za-z0-9_-]{0,63}"
_REF = re.compile(rf"({_NAME})(?::([1-9]\d{{0,5}})|@({_ALIAS}))?")
_TAKEN = ("minilm", "smollm")  # models that come with Twoshift's own packages


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model of the registry: its newest version, a version, or what an alias points to."""

    name: str
    version: int | None = None
    alias: str | None = None

    @property
    def is_explicit(self) -> bool:
        """Whether it can be nothing but a registered model; a bare name may also be that of a folder."""
        return self.version is not None or self.alias is not None

    def __str__(self) -> str:
        if self.version is not None:
            return f"{self.name}:{self.version}"
        return self.name if self.alias is None else f"{self.name}@{self.alias}"


def parse_ref(word: str) -> ModelRef | None:
    """What the word names; None where it cannot be the name of a registered model."""
    found = _REF.fullmatch(word)
    if found is None or found[1] in _TAKEN:
        return None
    return ModelRef(found[1], int(found[2]) if found[2] else None, found[3])


def checked_model_name(name: str) -> str:
    """The name of a model that is pushed; raises InvalidInput."""
    if name in _TAKEN:
        raise InvalidInput("NAME", name, f"another name: {name} is a built-in model")
    ref = parse_ref(name)
    if ref is None or ref.is_explicit:
        accepted = "up to 64 letters, digits, '.', '_' or '-', starting with a letter or digit"
        raise InvalidInput("NAME", name, accepted)
    return name


def version_ref(word: str, field: str = "VERSION") -> ModelRef:
    """NAME:3; raises InvalidInput."""
    ref = parse_ref(word)
    if ref is None or ref.version is None:
        raise InvalidInput(field, word, _expected(word, "a model and a version, such as NAME:3"))
    return ref


def alias_ref(word: str, field: str = "ALIAS") -> tuple[str, str]:
    """NAME@prod as name and alias; raises InvalidInput."""
    ref = parse_ref(word)
    if ref is None or ref.alias is None:
        raise InvalidInput(field, word, _expected(word, "a model and an alias, such as NAME@prod"))
    return ref.name, ref.alias


def _expected(word: str, form: str) -> str:
    found = _REF.fullmatch(word)
    if found is None or found[1] not in _TAKEN:
        return form
    return f"a registered model: {found[1]} is a built-in model"
