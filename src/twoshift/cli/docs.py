"""docs/cli.md, written from the program itself so that it cannot drift."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twoshift.cli import parser
from twoshift.cli.commands import example_of

__all__ = ["commands", "render"]

_INTRO = """# The command line

`make docs` generates this page from the program; a test checks that the page is up to date.

Every command takes `--help`. All commands except `serve`, `plan ui` and `batch results` take `--json` (one JSON object
on stdout, numbers unrounded; notes go to stderr). Exit codes: 0 done, 1 something is damaged, 2 bad usage or bad input,
75 try again later, 130 interrupted; [jobs](jobs.md#stopping) lists further exit codes of `run`. Numbers may have units
and suffixes: `12h`, `90m`, `1e9`, `400M`, `80GB`, `7B`, `5GB/s`, `40%`.
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
