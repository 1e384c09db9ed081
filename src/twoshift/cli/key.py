"""`key`: a new API key for a server's configuration."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from twoshift.cli.app import app
from twoshift.cli.commands import command
from twoshift.cli.output import show
from twoshift.cli.params import JsonFlag, choice, text

__all__ = ["key_command"]

_SCOPES = ("serve", "batch", "deploy", "read", "admin")  # those of `Access`: its module is no plain command's


@command(app, "key", "twoshift key alice")
def key_command(
    name: Annotated[str, typer.Argument(help="Name of the new key.")],
    tenant: Annotated[
        str | None,
        text(
            "Tenant of the key; keys of one tenant share jobs, files and quotas.",
            metavar="NAME",
            shown="a tenant with the name of the key",
        ),
    ] = None,
    scope: Annotated[
        list[str] | None,
        choice("Scope of the key; repeat the option for several scopes.", _SCOPES, shown="serve and batch"),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Create an API key, and print the lines for the server's configuration file. The key cannot be shown again."""
    from twoshift.serve.keys import digest_of, new_key

    key = new_key()
    settings: dict[str, str | list[str]] = {"sha256": digest_of(key)}
    if tenant:
        settings["tenant"] = tenant
    if scope:
        settings["scopes"] = [*dict.fromkeys(scope)]
    lines = (f"{name} = {_text(value)}" for name, value in settings.items())
    shown = f"API key of {name}: {key}", "Add these lines to the server's TOML file:", f"[keys.{_quoted(name)}]"
    show(as_json, {"name": name, "key": key, **settings}, *shown, *lines)


def _text(value: str | list[str]) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML's escapes, but for this one


def _quoted(name: str) -> str:
    plain = name.replace("-", "").replace("_", "")
    if plain.isascii() and plain.isalnum():
        return name
    return _text(name)
