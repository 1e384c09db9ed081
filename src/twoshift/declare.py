"""Settings that are declared once: the fields of a struct, each with what it means and what is accepted of it.

    workers: Annotated[int, setting("Worker processes.", whole(most=1024))] = 1

From such a field come the option of a command, the key of a file, the check of its value and its line in the docs.
"""

from __future__ import annotations

import difflib
import functools
import re
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from twoshift.errors import InvalidInput
from twoshift.values import Value, text

__all__ = ["Declared", "Setting", "check", "declared", "differing", "key", "setting", "settings_of"]

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


@dataclass(frozen=True, slots=True)
class Setting:
    """What a field of settings means."""

    about: str  # for the help of its option, and for the docs
    value: Value
    flags: tuple[str, ...]  # of its option; empty: --its-name
    shown: str  # the default in words, where it is None or derived
    more: str = ""  # for the docs alone
    has_option: bool = True


@dataclass(frozen=True, slots=True)
class Declared:
    """A field of settings. `marks` are the further words of its annotation, for whoever knows them."""

    name: str
    type: Any  # without None
    default: Any  # msgspec.NODEFAULT where it must be given
    setting: Setting
    marks: tuple[Any, ...]

    @property
    def flag(self) -> str:
        """As the user types it."""
        return max(self.flags, key=len)

    @property
    def flags(self) -> tuple[str, ...]:
        """All of them; a word without dashes is an argument."""
        return self.setting.flags or (f"--{self.name.replace('_', '-')}",)

    @property
    def is_needed(self) -> bool:
        """Whether there is no default."""
        return self.default is msgspec.NODEFAULT

    @property
    def has_option(self) -> bool:
        """Whether a command has it as an option."""
        return self.setting.has_option and self.flag.startswith("-")

    @property
    def shown_default(self) -> str:
        """For people; empty where there is none."""
        if self.setting.shown or self.is_needed or self.default is False or self.default in (None, (), {}):
            return self.setting.shown
        return f"{self.default:g}" if isinstance(self.default, float) else self.setting.value.write(self.default)


def setting(about: str, value: Value | None = None, *flags: str, shown: str = "", more: str = "") -> Setting:
    """The second half of an `Annotated`, for a field that has an option as well as a key."""
    return Setting(about, value or text(), flags, shown, more)


def key(about: str, value: Value | None = None, shown: str = "") -> Setting:
    """The same for a field that only files have."""
    return Setting(about, value or text(), (), shown, has_option=False)


@functools.cache
def declared(kind: type[msgspec.Struct]) -> Mapping[str, Declared]:
    """The fields of settings, by name, in their order."""
    hints, found = get_type_hints(kind, include_extras=True), dict[str, Declared]()
    for field in msgspec.structs.fields(kind):
        hint, marks = hints[field.name], ()
        if get_origin(hint) is Annotated:
            hint, *marks = get_args(hint)
        [given] = [each for each in marks if isinstance(each, Setting)]
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        others = tuple(each for each in marks if each is not given)
        found[field.name] = Declared(field.name, _without_none(hint), default, given, others)
    return types.MappingProxyType(found)


def _without_none(hint: Any) -> Any:
    kinds = [each for each in get_args(hint) if each is not type(None)]
    return kinds[0] if isinstance(hint, types.UnionType) and len(kinds) == 1 else hint


def check(settings: msgspec.Struct) -> None:
    """Each value by itself; raises InvalidInput that names the field and what is accepted."""
    for name, each in declared(type(settings)).items():
        value, kind = getattr(settings, name), each.setting.value
        if value is not None and not kind.fits(value):
            if kind.options and isinstance(value, str):
                kind.parse(value, name)  # it says the same of an option, with the nearest word
            raise InvalidInput(name, ",".join(value) if isinstance(value, tuple) else value, kind.plain)


def differing(kind: type[msgspec.Struct], plain: Mapping[str, Any]) -> dict[str, Any]:
    """Those of plain values that are not the defaults, in the order of the fields."""
    given = [each for name, each in declared(kind).items() if name in plain]
    return {
        each.name: plain[each.name] for each in given if each.is_needed or not _same(plain[each.name], each.default)
    }


def _same(plain: Any, default: Any) -> bool:
    return (tuple(plain) if isinstance(plain, list) else plain) == msgspec.to_builtins(default)


def settings_of(kind: type[T], data: dict[str, Any], table: str = "") -> T:
    """Plain values as settings; raises InvalidInput with the key, and the nearest known one for an unknown.

    `table` is the one that the keys stand in, as a file names it: models.minilm. A list of one may be a plain string.
    """
    fields = declared(kind)
    for key in data:
        if key not in fields:
            raise InvalidInput(_key(table, key), data[key], f"a known key, such as {_nearest(key, fields)}")
    read = {name: _read(fields[name].type, value, _key(table, name)) for name, value in data.items()}
    try:
        return msgspec.convert(read, kind)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InvalidInput):  # ours, and it says it better
            raise error.__cause__.renamed(_key(table, error.__cause__.field)) from None
        raise _misfit(str(error), data, table, fields) from error


def _read(kind: Any, value: Any, key: str) -> Any:
    """A value with the tables in it as settings."""
    if kind == tuple[str, ...] and isinstance(value, str):
        return (value,)
    inner = get_args(kind)[-1] if get_origin(kind) is dict else kind
    if not (isinstance(inner, type) and issubclass(inner, msgspec.Struct)) or isinstance(value, inner):
        return value
    if inner is kind:
        if not isinstance(value, dict):
            raise InvalidInput(key, value, f"a table that begins with [{key}]")
        return settings_of(inner, value, key)
    if not isinstance(value, dict) or not all(isinstance(each, dict | inner) for each in value.values()):
        raise InvalidInput(key, value, f"tables such as [{key}.first]")
    return {name: _read(inner, each, f"{key}.{name}") for name, each in value.items()}


def _key(table: str, key: str) -> str:
    return f"{table}.{key}" if table else key


def _misfit(told: str, data: dict[str, Any], table: str, fields: Mapping[str, Declared]) -> InvalidInput:
    """What msgspec says of a value, about the value; in the words that its option has for it, where there are some."""
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
    if place in fields and (plain := fields[place].setting.value.plain):
        return InvalidInput(_key(table, place), value, plain)
    typed = _TYPED.fullmatch(what)
    kinds = [_KINDS.get(each, each) for each in typed[1].split(" | ") if each != "null"] if typed else []
    return InvalidInput(_key(table, place), value, " or ".join(dict.fromkeys(kinds)) or what)


def _nearest(key: str, known: Mapping[str, Declared]) -> str:
    """The known key that is meant: one whose option it is, one that it begins or that begins it, or one alike."""
    by_option = [each.name for each in known.values() if each.flag.lstrip("-").replace("-", "_") == key]
    longer = [name for name in known if name.startswith(key)]
    shorter = sorted((name for name in known if key.startswith(name)), key=len, reverse=True)
    near = [*by_option, *longer, *shorter, *difflib.get_close_matches(key, known, 1, 0.4)]
    return near[0] if near else ", ".join(known)
