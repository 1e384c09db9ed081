"""Options of commands: numbers as people write them, refused with the option's name, the value and what is accepted.

Each function makes the second half of an `Annotated`: `items: Annotated[float, count("Rows to score.")]`. `shown` is
the default in words, for an option that is None until somebody gives it. `with_settings` gives a command the options
of settings that are declared elsewhere.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar, get_args

import msgspec
import typer

from twoshift import logs, values
from twoshift.declare import Declared, Setting, declared
from twoshift.values import Value

__all__ = [
    "JsonFlag", "LogFormatOption", "choice", "count", "duration", "factor", "flags_of", "given_of", "millis",
    "option_of", "share", "size", "text", "usd", "whole", "with_settings",
]  # fmt: skip

_F = TypeVar("_F", bound=Callable[..., Any])

JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]


def _maker(kind: Callable[..., Value]) -> Callable[..., Any]:
    def make(about: str, *flags: str, shown: str | None = None, **bounds: Any) -> Any:
        return _option(kind(**bounds), about, flags, shown)

    make.__doc__ = kind.__doc__
    return make


count, whole, duration, millis = (_maker(kind) for kind in (values.count, values.whole, values.duration, values.millis))
size, factor, usd, share = (_maker(kind) for kind in (values.size, values.factor, values.usd, values.share))
text = _maker(values.text)


def choice(about: str, options: Sequence[str], *flags: str, metavar: str = "NAME", shown: str | None = None) -> Any:
    """One of a few words, upper or lower case."""
    return _option(values.choice(options, metavar), about, flags, shown)


def option_of(hint: Any) -> Any:
    """An option like a setting that is declared elsewhere, with a default of its own."""
    [found] = [each for each in get_args(hint) if isinstance(each, Setting)]
    return _option(found.value, found.about, found.flags, found.shown)


def with_settings(*kinds: type[msgspec.Struct]) -> Callable[[_F], _F]:
    """Give a function that takes `**given` the options of settings, before those that it has behind a `*`."""

    def decorate(function: _F) -> _F:
        own = inspect.signature(function, eval_str=True)
        named = [each for each in own.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        last = [each for each in named if each.kind is inspect.Parameter.KEYWORD_ONLY]
        options = [
            inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_hint(each))
            for kind in kinds
            for each in declared(kind).values()
            if each.has_option
        ]
        together = [*named[: len(named) - len(last)], *options, *last]
        function.__dict__["__signature__"] = own.replace(parameters=together)
        return function

    return decorate


def given_of(kind: type[msgspec.Struct], given: dict[str, Any]) -> dict[str, Any]:
    """Those options that were given and are of these settings; raises InvalidInput."""
    options = [each for each in declared(kind).values() if each.has_option and given[each.name] not in (None, [])]
    return {each.name: _together(each, given[each.name]) for each in options}


def _together(each: Declared, value: Any) -> Any:
    """What all that was given of one option is."""
    joined = each.setting.value.joined
    return value if joined is None else joined(value, each.flag)


def flags_of(*kinds: type[msgspec.Struct]) -> dict[str, str]:
    """The option, or the argument, of each setting that has one."""
    return {each.name: each.flag for kind in kinds for each in declared(kind).values() if each.setting.has_option}


def _hint(each: Declared) -> Any:
    value, plain = each.setting.value, each.type if each.type in (bool, int, float) else str
    kind = list[str] if value.repeats else plain
    return Annotated[kind | None, _option(value, each.setting.about, each.flags, each.shown_default)]


def _option(value: Value, about: str, flags: tuple[str, ...], shown: str | None = None) -> Any:
    if value.repeats or value is values.FLAG:
        return typer.Option(*flags, metavar=value.metavar or None, help=about, show_default=shown or True)
    about += f" One of {', '.join(value.options)}." if value.options else ""

    # A callback and not a parser does the work: it knows the option's name, and its errors pass unchanged.
    def convert(param: typer.CallbackParam, given: Any) -> Any:
        flag = max(param.opts, key=len)
        if isinstance(given, list | tuple):
            return [value.parse(each, flag) if isinstance(each, str) else each for each in given]
        return value.parse(given, flag) if isinstance(given, str) else given

    return typer.Option(
        *flags, parser=_as_given, callback=convert, metavar=value.metavar, help=about,
        show_default=shown or True,
    )  # fmt: skip


def _as_given(value: Any) -> Any:
    return value


LogFormatOption = Annotated[str, option_of(logs.LogFormat)]
