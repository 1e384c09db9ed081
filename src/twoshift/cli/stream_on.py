"""A stream on a server: sent, and followed until it is interrupted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from twoshift.cli.output import note, show
from twoshift.cli.server import ServerClient, server_at
from twoshift.cli.streams import figures, stream_path, stream_words
from twoshift.client.requests import absolute
from twoshift.declare import differing

if TYPE_CHECKING:
    from twoshift.batch.settings import JobSettings
    from twoshift.streams.settings import StreamSettings

__all__ = ["stream_on"]

_POLL_S, _SAY_EVERY_S = 0.5, 10.0
_CODES = {"done": 0, "paused": 3, "cancelled": 3, "failed": 2, "queued": 3, "running": 0}  # the last: it goes on there


def stream_on(url: str, settings: StreamSettings, job: JobSettings, detach: bool, as_json: bool) -> int:
    """Its exit code: 0 while it runs on the server, whoever watches it."""
    server = server_at(url)
    stream = server.post("/v1/streams", _data(server, settings, job))
    note(f"Created {stream['id']} on {url}. To see its state: `twoshift streams show {stream['id']}{server.option}`")
    if not detach:
        stream = _followed(server, stream)
    show(as_json, stream, *stream_words(stream))
    return 0 if detach else _CODES[stream["state"]]


def _data(server: ServerClient, settings: StreamSettings, job: JobSettings) -> dict[str, Any]:
    """What was said; names of files begin at the root, where both see the same disk."""
    own = differing(type(settings), msgspec.to_builtins(settings))
    data = differing(type(job), msgspec.to_builtins(job)) | own
    del data["inputs"]  # they follow from the source
    if server.is_local:
        data["source"], data["output"] = absolute(data["source"]), absolute(data["output"])
    return data


def _followed(server: ServerClient, stream: dict[str, Any]) -> dict[str, Any]:
    """Until it is over or paused; an interrupt leaves it running."""
    due_s, told = time.monotonic() + _POLL_S, ""
    try:
        while stream["state"] in ("queued", "running"):
            time.sleep(_POLL_S)
            stream = server.get(
                stream_path(stream["id"]),
                lambda error: note(f"{error}: the stream continues when the server is back"),
            )
            why = stream["reason"] or (stream["progress"] or {}).get("problem", "")
            if why and why != told:
                note(f"The stream is waiting: {why}")
            told = why
            if time.monotonic() >= due_s and stream["progress"]:
                due_s = time.monotonic() + _SAY_EVERY_S
                note("; ".join(figures(stream["progress"])))
    except KeyboardInterrupt:
        note(f"The stream keeps running: `twoshift streams cancel {stream['id']}{server.option}` stops it.")
    return stream
