"""`key`: a new API key for a server's configuration."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from twoshift.cli.app import app
from twoshift.cli.commands import command
from twoshift.cli.output import show
from twoshift.cli.params import JsonFlag

__all__ = ["key_command"]


@command(app, "key", "twoshift key alice")
def key_command(
    name: Annotated[str, typer.Argument(help="Whose it is.")],
    as_json: JsonFlag = False,
) -> None:
    """Make an API key, and the lines that let `twoshift serve --config` know it. The key is shown once."""
    from twoshift.serve.keys import digest_of, new_key

    key = new_key()
    lines = (f"The key, for {name}: {key}", "In the server's TOML file:", f"[keys.{_quoted(name)}]",
             f'sha256 = "{digest_of(key)}"')  # fmt: skip
    show(as_json, {"name": name, "key": key, "sha256": digest_of(key)}, *lines)


def _quoted(name: str) -> str:
    plain = name.replace("-", "").replace("_", "")
    if plain.isascii() and plain.isalnum():
        return name
    return json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML's escapes, but for this one
