"""How a command is declared: with an example, and with errors that name its options."""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import typer
from typer.models import ArgumentInfo

from twoshift.errors import InvalidInput

__all__ = ["command", "example_of", "group", "lone_group"]

_F = TypeVar("_F", bound=Callable[..., Any])
_HEADING = "Example:\n\n"


def group(about: str, example: str) -> typer.Typer:
    """An app whose commands follow; alone it prints its help."""
    return typer.Typer(
        help=about,
        epilog=_epilog(example),
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )


def lone_group(about: str, example: str) -> typer.Typer:
    """An app with commands whose callback is a command, too."""
    return typer.Typer(help=about, epilog=_epilog(example), invoke_without_command=True, pretty_exceptions_enable=False)


def command(app: typer.Typer, name: str, example: str, fields: Mapping[str, str] | None = None) -> Callable[[_F], _F]:
    """Register a command; `example` is a command line that works, shown last in its help and in docs/cli.md.

    `fields` names the parameter behind a field of an error where the two are called differently, or what the user
    typed where that is not made from a parameter's name.
    """

    def register(function: _F) -> _F:
        app.command(name, epilog=_epilog(example))(_naming_options(function, fields or {}))
        return function

    return register


def example_of(epilog: str | None) -> str | None:
    """The command line in a command's help, as it was declared."""
    if not epilog or not epilog.startswith(_HEADING):
        return None
    return textwrap.dedent(epilog.removeprefix(_HEADING))


def _epilog(example: str) -> str:
    return _HEADING + textwrap.indent(textwrap.dedent(example).strip(), "  ")


def _naming_options(function: Callable[..., Any], fields: Mapping[str, str]) -> Callable[..., Any]:
    """Turn a field that is a parameter into the option that the user typed."""
    parameters = inspect.signature(function).parameters

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except InvalidInput as error:
            field = fields.get(error.field, error.field)
            if field in parameters and not _is_argument(function, field):
                field = f"--{field.replace('_', '-')}"
            if field == error.field:
                raise
            raise error.renamed(field) from error

    return run


def _is_argument(function: Callable[..., Any], name: str) -> bool:
    """Whether it is known by its place: there is no option of that name."""
    hint = inspect.signature(function, eval_str=True).parameters[name].annotation
    return any(isinstance(each, ArgumentInfo) for each in getattr(hint, "__metadata__", ()))
