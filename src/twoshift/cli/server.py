"""A server as the commands talk to it."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import secrets
import shlex
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

from twoshift.cli.params import text
from twoshift.errors import Broken, Denied, InvalidInput, Malformed, OverLimit, TryLater
from twoshift.policy.retries import RetryPolicy
from twoshift.retrying import retried

__all__ = ["SERVER_FIELDS", "On", "Server", "server_at"]

_TIMEOUT_S = 30.0
_RETRY_S = 1.0
_PIECE_BYTES = 1 << 20
_RESTARTS = RetryPolicy(5.0, 5.0, 120.0)
SERVER_FIELDS = {"server": "--on"}
On = Annotated[
    str | None, text("Server: http://host:8000. TWOSHIFT_KEY holds the key.", metavar="URL", shown="TWOSHIFT_SERVER")
]


def server_at(given: str | None) -> Server:
    """The one that was named, or the environment's; raises InvalidInput where there is none."""
    url = given or os.environ.get("TWOSHIFT_SERVER", "").strip()
    if not url:
        raise InvalidInput("server", None, "the URL of a `twoshift serve`, or TWOSHIFT_SERVER")
    return Server(url, os.environ.get("TWOSHIFT_KEY", "").strip() or None, named=bool(given))


class _Refused(Malformed):
    """What the server says is wrong, in its own words."""

    def __init__(self, message: str) -> None:
        super().__init__("request", message)

    def _message(self) -> str:
        return self.accepted


class Server:
    """Requests, one at a time, and what is wrong with them as our own errors."""

    def __init__(self, url: str, key: str | None, named: bool = True) -> None:
        parsed = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
        try:
            port = parsed.port
        except ValueError:
            port = -1
        if parsed.scheme not in ("http", "https") or not parsed.hostname or port == -1:
            raise InvalidInput("server", url, "an address such as http://127.0.0.1:8000")
        self.option = f" --on {shlex.quote(url)}" if named else ""  # of another command, to reach it, too
        self.url, self.is_local = url, parsed.hostname in ("127.0.0.1", "localhost", "::1")
        kind = http.client.HTTPSConnection if parsed.scheme == "https" else http.client.HTTPConnection
        self._connect = lambda: kind(parsed.hostname or "", port, timeout=_TIMEOUT_S)
        self._headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})

    def get(self, path: str, on_failure: Callable[[Exception], None] | None = None) -> Any:
        """What lies there; with `on_failure` a server that is started again is asked again for a while."""

        def may_retry(error: Exception, _age_s: float) -> bool:
            if on_failure is not None and isinstance(error, TryLater):
                on_failure(error)
                return True
            return False

        return retried(lambda: self._asked("GET", path, None), _RESTARTS, may_retry)

    def text(self, path: str) -> str:
        """What it answers, where that is no JSON."""
        pieces = list[bytes]()
        self.download(path, pieces.append)
        return b"".join(pieces).decode()

    def post(self, path: str, body: Any = None) -> Any:
        """What it answers."""
        return self._asked("POST", path, b"" if body is None else json.dumps(body).encode())

    def delete(self, path: str) -> Any:
        """What was there."""
        return self._asked("DELETE", path, None)

    def upload(self, path: Path, fields: dict[str, str]) -> Any:
        """A file, as a form at /v1/files, piece by piece."""
        boundary = secrets.token_hex(16)
        head = "".join(_field(boundary, name, value) for name, value in fields.items()).encode()
        name = urllib.parse.quote(path.name, safe=" .,()[]")
        head += f'--{boundary}\r\ncontent-disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
        tail = f"\r\n--{boundary}--\r\n".encode()
        headers = {
            "content-type": f"multipart/form-data; boundary={boundary}",
            "content-length": str(len(head) + path.stat().st_size + len(tail)),
        }
        with path.open("rb") as file:
            pieces = itertools.chain([head], iter(lambda: file.read(_PIECE_BYTES), b""), [tail])
            return self._asked("POST", "/v1/files", pieces, headers)

    def download(self, path: str, take: Callable[[bytes], object]) -> None:
        """What lies there, piece by piece."""
        with self._answered("GET", path, None, {}) as reply:
            if reply.status != 200:
                raise _error(reply.status, _decoded(reply.read(), f"{self.url} answers GET {path}"), _RETRY_S)
            while piece := reply.read(_PIECE_BYTES):
                take(piece)

    @contextlib.contextmanager
    def _answered(
        self, method: str, path: str, body: Any, headers: dict[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        connection = self._connect()
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may have said why before it hung up
                connection.request(method, path, body, {**self._headers, **headers})
            yield connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise TryLater(f"the server {self.url} does not answer ({error})", _RETRY_S) from error
        finally:
            connection.close()

    def _asked(self, method: str, path: str, body: Any, headers: dict[str, str] | None = None) -> Any:
        with self._answered(method, path, body, headers or {}) as reply:
            data = reply.read()
        decoded = _decoded(data, f"{self.url} answers {method} {path}")
        if reply.status >= 400:
            raise _error(reply.status, decoded, float(reply.headers.get("retry-after-ms") or 1000) / 1e3)
        return decoded


def _decoded(data: bytes, what: str) -> Any:
    try:
        return json.loads(data) if data else None
    except ValueError:
        raise Broken(f"{what} with something that is no JSON") from None


def _field(boundary: str, name: str, value: str) -> str:
    return f'--{boundary}\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'


def _error(status: int, decoded: Any, retry_after_s: float) -> Exception:
    told = decoded.get("error") if isinstance(decoded, dict) else None
    message = told.get("message") if isinstance(told, dict) else f"status {status}"
    match status:
        case 400 | 404 | 413:
            return _Refused(str(message))
        case 401 | 403:
            return Denied(f"{message} (TWOSHIFT_KEY holds the key)")
        case 429:
            return OverLimit(str(message), retry_after_s)
        case 503:
            return TryLater(str(message), retry_after_s)
        case _:
            return Broken(f"the server: {message}")
