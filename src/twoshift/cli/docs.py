"""docs/cli.md, written from the program itself so that it cannot drift."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twoshift.cli import parser
from twoshift.cli.commands import example_of

__all__ = ["commands", "render"]

_INTRO = """# The command line

`make docs` generates this page from the program; a test checks that the page is up to date.

Every command has the option `--help`. All commands except `serve`, `plan ui` and `batch results` have the option
`--json`, which prints one JSON object with unrounded numbers on stdout. Notes always go to stderr. A number may have a
unit or a suffix: `12h`, `90m`, `1e9`, `400M`, `80GB`, `7B`, `5GB/s`, `40%`.

| exit code | meaning |
|---|---|
| 0 | The command succeeded. |
| 1 | Data is damaged, or a check failed. |
| 2 | The command line or the input is wrong; the message says what is accepted. |
| 75 | The server cannot do this now; try again later. |
| 130 | The command was interrupted. |

`twoshift run` has [further exit codes](jobs.md#stopping).
"""


def commands() -> Iterator[tuple[str, Any]]:
    """(full name, command) of every command that does something, in the order of the help."""
    yield from _walk("twoshift", parser())


def render() -> str:
    """The whole page."""
    return "\n".join([_INTRO, *(_section(name, each) for name, each in commands())])


def _walk(path: str, node: Any) -> Iterator[tuple[str, Any]]:
    children = getattr(node, "commands", None)
    if children is None:
        yield path, node
        return
    if getattr(node, "invoke_without_command", False):
        yield path, node
    for name, child in children.items():
        yield from _walk(f"{path} {name}", child)


def _section(name: str, node: Any) -> str:
    rows = [_option_row(p) for p in node.params if not getattr(p, "hidden", False) and p.name != "help"]
    lines = [
        f"## {name}",
        "",
        " ".join((node.help or "").split()),
        "",
        "```sh",
        example_of(node.epilog) or name,
        "```",
        "",
        "| option | value | default | meaning |",
        "|---|---|---|---|",
        *rows,
        "",
    ]
    return "\n".join(lines)


def _option_row(param: Any) -> str:
    if param.param_type_name == "argument":
        names, value = f"`{param.name.upper()}`", ""
    else:
        names = ", ".join(f"`{flag}`" for flag in [*param.opts, *param.secondary_opts])
        value = "" if param.is_flag else param.metavar or "TEXT"
    many = " (repeatable)" if getattr(param, "multiple", False) else ""
    return f"| {names} | {value}{many} | {_default(param)} | {_cell(param.help or '')} |"


def _default(param: Any) -> str:
    if param.required:
        return "required"
    if isinstance(param.show_default, str):
        return param.show_default
    value = param.default() if callable(param.default) else param.default
    if value is None or value is False or value == "":
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(str(v) for v in value)
    return str(value)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
