"""docs/configuration.md: every key of a job's and a server's file, written from the settings themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_origin

import msgspec

from twoshift.batch.setting_values import Mark
from twoshift.batch.settings import JobSettings
from twoshift.declare import Declared, declared
from twoshift.serve.settings import ServeSettings
from twoshift.streams.settings import StreamJobSettings, StreamSettings

__all__ = ["render_configuration"]

_INTRO = """# Configuration

`make docs` generates this page from the program; a test checks that the page is up to date.

Three commands read TOML files: `twoshift run job.toml` (a job), `twoshift stream stream.toml` (a stream) and
`twoshift serve --config server.toml` (a server). Options on the command line override the file. An unknown key is an
error, and the message names the most similar known key. A list with one text may be written as a single text. A
duration is a text such as "12h", "90m", "1h30m", "45s" or "250ms". Relative paths start at the current folder, not at
the folder of the file.
"""
_TYPES = {
    bool: "true or false", int: "whole number", float: "number", str: "text", tuple[str, ...]: "list of texts",
    tuple[float, ...]: "list of numbers",
}  # fmt: skip
_ARTICLES = ("a number", "a whole number", "a share", "a duration", "a factor")
_ROW = "| key | value | default | option | meaning |\n|---|---|---|---|---|"


def render_configuration() -> str:
    """The whole page."""
    fields = declared(JobSettings).values()
    fixed = _named(each for each in fields if {Mark.ROWS, Mark.SHARDS} & {*each.marks})
    here = _named(each for each in fields if Mark.HERE in each.marks)
    job = [
        f"A resumed job must have the same input, the same model, and the same values of {fixed}. All other keys may "
        "change.\n",
        f"`POST /v1/jobs` takes the same keys as JSON. It does not take {here}, because a job on a server runs on the "
        "replicas of the server.\n",
    ]
    of_job = ", ".join(f"`{name}`" for name in declared(StreamJobSettings))
    stream = ["## A stream\n", f"A stream also has these keys of a job: {of_job}.\n"]
    stream.append(_table(StreamSettings))
    return "\n".join([_INTRO, "## A job\n", *job, _table(JobSettings), *stream, *_server("", ServeSettings)])


def _named(fields: Iterator[Declared]) -> str:
    *most, last = [f"`{each.name}`" for each in fields if Mark.BATCH not in each.marks and each.name != "workers"]
    return f"{', '.join(most)} and {last}"


def _server(path: str, kind: type[msgspec.Struct]) -> Iterator[str]:
    """The sections of a table, and of the tables in it."""
    yield f"## `[{path}]`\n" if path else "## A server\n"
    yield _table(kind)
    for name, inner in _tables(kind):
        yield from _server(f"{path}.{name}" if path else name, inner)


def _tables(kind: type[msgspec.Struct]) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    for name, each in declared(kind).items():
        is_named = get_origin(each.type) is dict
        inner = get_args(each.type)[-1] if is_named else each.type
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            yield (f"{name}.NAME" if is_named else name), inner


def _table(kind: type[msgspec.Struct]) -> str:
    return "\n".join([_ROW, *(_row(each) for each in declared(kind).values()), ""])


def _row(each: Declared) -> str:
    option = f"`{each.flag}`" if each.setting.has_option else ""
    meaning = f"{each.setting.about} {each.setting.more}".strip().replace("|", "\\|")
    return f"| `{each.name}` | {_value(each)} | {_default(each)} | {option} | {meaning} |"


def _value(each: Declared) -> str:
    plain, kind = each.setting.value.plain.partition(", such as")[0], _TYPES.get(each.type, "table")
    if plain.startswith(_ARTICLES):
        return plain.removeprefix("a ")
    return f"{kind}: {plain}" if plain else kind


def _default(each: Declared) -> str:
    if each.default in (msgspec.NODEFAULT, None, (), "") or isinstance(each.default, dict | msgspec.Struct):
        return each.setting.shown or ("required" if each.is_needed else "")
    default: Any = each.default
    return f"`{default:.12g}`" if isinstance(default, float) else f"`{msgspec.json.encode(default).decode()}`"
