"""Settings of a server's console."""

from __future__ import annotations

from typing import Annotated

from twoshift.declare import key
from twoshift.values import FLAG, names

__all__ = ["ConsoleHosts", "HasConsole"]

HasConsole = Annotated[bool, key("Serve the web console at `/`.", FLAG)]
ConsoleHosts = Annotated[
    tuple[str, ...],
    key(
        "Additional host names under which the web console may be opened on a server without API keys.",
        names(),
    ),
]
