"""A server as the commands talk to it."""

from __future__ import annotations

import os
import shlex
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from twoshift.cli.params import text
from twoshift.errors import Broken, Denied, InvalidInput, Malformed, TryLater
from twoshift.policy.retries import RetryPolicy
from twoshift.retrying import retried

__all__ = ["SERVER_FIELDS", "On", "ServerClient", "server_at"]

_TIMEOUT_S = 30.0
_RESTARTS = RetryPolicy(5.0, 5.0, 120.0)
SERVER_FIELDS = {"server": "--on"}
On = Annotated[
    str | None,
    text(
        "URL of the server: http://host:8000. The environment variable TWOSHIFT_KEY sets the API key.",
        metavar="URL",
        shown="the environment variable TWOSHIFT_SERVER",
    ),
]


def server_at(given: str | None) -> ServerClient:
    """The one that was named, or the environment's; raises InvalidInput where there is none."""
    url = given or os.environ.get("TWOSHIFT_SERVER", "").strip()
    if not url:
        accepted = "the URL of a server, such as http://127.0.0.1:8000, or the environment variable TWOSHIFT_SERVER"
        raise InvalidInput("server", None, accepted)
    return ServerClient(url, named=bool(given))


class _Refused(Malformed):
    """What the server says is wrong, in its own words."""

    def __init__(self, message: str) -> None:
        super().__init__("request", message)

    def _message(self) -> str:
        return self.accepted


class ServerClient:
    """Requests, one at a time, and what is wrong with them as our own errors."""

    def __init__(self, url: str, named: bool = True) -> None:
        from twoshift.client.transport import Transport

        try:
            self._transport = Transport(url, timeout_s=_TIMEOUT_S, max_retries=0)
        except InvalidInput as error:
            raise error.renamed("server") if error.field == "url" else error from None
        weakref.finalize(self, self._transport.close)  # with the command that made it
        self.option = f" --on {shlex.quote(url)}" if named else ""  # of another command, to reach it, too
        self.url, self.is_local = url, self._transport.is_local

    def get(self, path: str, on_failure: Callable[[Exception], None] | None = None) -> Any:
        """What lies there; with `on_failure` a server that is started again is asked again for a while."""

        def may_retry(error: Exception, _age_s: float) -> bool:
            if on_failure is not None and isinstance(error, TryLater):
                on_failure(error)
                return True
            return False

        return retried(lambda: self._asked("GET", path), _RESTARTS, may_retry)

    def text(self, path: str) -> str:
        """What it answers, where that is no JSON."""
        pieces = list[bytes]()
        self.download(path, pieces.append)
        return b"".join(pieces).decode()

    def post(self, path: str, body: Any = None) -> Any:
        """What it answers."""
        return self._asked("POST", path, body)

    def delete(self, path: str) -> Any:
        """What was there."""
        return self._asked("DELETE", path)

    def upload(self, path: Path, fields: dict[str, str]) -> Any:
        """A file, as a form at /v1/files, piece by piece."""
        from twoshift.client.calls import ApiCall, Upload, json_of

        with path.open("rb") as file:
            upload = Upload(path.name, file, fields)
            return self._run(ApiCall("POST", "/v1/files", lambda reply: json_of(reply, "/v1/files"), upload=upload))

    def download(self, path: str, take: Callable[[bytes], object]) -> None:
        """What lies there, piece by piece."""
        from twoshift.client.calls import ApiCall

        self._run(ApiCall("GET", path, lambda _reply: None, sink=take))

    def _asked(self, method: str, path: str, body: Any = None) -> Any:
        from twoshift.client.requests import request

        return self._run(request(method, path, body))

    def _run(self, call: Any) -> Any:
        try:
            return self._transport.run(call)
        except InvalidInput as error:
            raise _Refused(str(error)) from None
        except Denied as error:
            raise Denied(f"{error} (set the API key in the environment variable TWOSHIFT_KEY)") from None
        except Broken as error:
            raise Broken(f"the server reports: {error}") from None
