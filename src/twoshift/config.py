"""Settings, read once at the edge: unknown keys are errors that name the nearest known one."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from twoshift.errors import InvalidInput

__all__ = ["home", "naming_file", "read_toml", "settings_of"]

_MISSING = re.compile(r"Object missing required field `([^`]+)`")
_TYPED = re.compile(r"Expected `([^`]+)`, got `[^`]+`")
_STEPS = re.compile(r"\.?([^.\[]+)|\[([^\]]*)\]")
_KINDS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "a table",
    "str": "a text",
}

T = TypeVar("T", bound=msgspec.Struct)


def home() -> Path:
    """The folder that holds what outlives a command: TWOSHIFT_HOME, or the platform's user data folder."""
    chosen = os.environ.get("TWOSHIFT_HOME", "").strip()
    if chosen:
        try:
            return Path(chosen).expanduser()
        except RuntimeError:
            raise InvalidInput("TWOSHIFT_HOME", chosen, "a folder; there is no such user") from None
    import platformdirs  # slow enough to matter, and not needed when the variable is set

    return platformdirs.user_data_path("twoshift")


def read_toml(path: Path, field: str) -> dict[str, Any]:
    """What a TOML file holds; raises InvalidInput."""
    try:
        return msgspec.toml.decode(path.read_bytes())
    except OSError as error:
        raise InvalidInput(field, str(path), f"a file that can be read ({error.strerror})") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(field, str(path), f"TOML ({error})") from error


def settings_of(kind: type[T], data: dict[str, Any], table: str = "") -> T:
    """Plain values as settings; raises InvalidInput with the key, and the nearest known one for an unknown.

    `table` is the one that the keys stand in, as a file names it: models.minilm.
    """
    for key in data:
        if key not in kind.__struct_fields__:
            accepted = f"a known key, such as {_nearest(key, kind.__struct_fields__)}"
            raise InvalidInput(_key(table, key), data[key], accepted)
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InvalidInput):  # ours, and it says it better
            raise error.__cause__.renamed(_key(table, error.__cause__.field)) from None
        raise _misfit(str(error), data, table) from error


@contextlib.contextmanager
def naming_file(path: str | Path, overrides: Collection[str]) -> Iterator[None]:
    """Errors about what a file says name it with their key; what an option says in its place keeps its name."""
    try:
        yield
    except InvalidInput as error:
        if error.field.partition(".")[0] in overrides or error.field.startswith("-"):
            raise
        raise error.renamed(f"{path}: {error.field}") from None


def _key(table: str, key: str) -> str:
    return f"{table}.{key}" if table else key


def _misfit(told: str, data: dict[str, Any], table: str) -> InvalidInput:
    """What msgspec says of a value, about the value."""
    what, _, place = told.partition(" - at `$")
    place = place.removeprefix(".").removesuffix("`")
    if missing := _MISSING.fullmatch(what):
        return InvalidInput(_key(table, _key(place, missing[1])), None, "a value")
    value: Any = data
    for name, index in _STEPS.findall(place):
        match value:
            case dict():
                value = value.get(name, value)
            case list() | tuple() if index.isdigit():
                value = value[int(index)]
            case _:
                break
    typed = _TYPED.fullmatch(what)
    kinds = [_KINDS.get(each, each) for each in typed[1].split(" | ") if each != "null"] if typed else []
    return InvalidInput(_key(table, place), value, " or ".join(dict.fromkeys(kinds)) or what)


def _nearest(key: str, known: tuple[str, ...]) -> str:
    """The known key that is meant: one that it begins, the longest that begins it, or one that looks like it."""
    longer = [name for name in known if name.startswith(key)]
    shorter = sorted((name for name in known if key.startswith(name)), key=len, reverse=True)
    near = [*longer, *shorter, *difflib.get_close_matches(key, known, 1, 0.4)]
    return near[0] if near else ", ".join(known)
