"""A real S3 server, and a proxy before it that misbehaves when told to."""

from __future__ import annotations

import http.client
import http.server
import logging
import subprocess
import sys
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@contextmanager
def moto_server(script: str = __file__) -> Iterator[str]:
    """moto on a free port, in a process of its own: vLLM looks through all modules here, and Flask's do not bear it."""
    if find_spec("moto") is None:
        pytest.skip("needs moto")
    program = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None
        yield f"http://127.0.0.1:{int(program.stdout.readline())}"
    finally:
        program.kill()
        program.communicate()


def serve_moto(wrapped: Callable[[Any], Any] = lambda app: app) -> None:
    """One request at a time: its conditional put is not atomic by itself, as S3's is."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def one_at_a_time(environ: Any, start_response: Any) -> Any:
        with lock:
            return app(environ, start_response)

    server = make_server("127.0.0.1", 0, wrapped(one_at_a_time), threaded=True)
    print(server.server_port, flush=True)
    server.serve_forever()


def make_bucket(endpoint: str, name: str) -> None:
    """An empty bucket."""
    with urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{name}", method="PUT")):  # noqa: S310
        pass


def put_raw(endpoint: str, bucket: str, quoted_key: str, data: bytes) -> None:
    """An object as another client would put it."""
    place, kind = f"{endpoint}/{bucket}/{quoted_key}", {"Content-Type": "application/octet-stream"}  # else it is a form
    request = urllib.request.Request(place, data=data, headers=kind, method="PUT")  # noqa: S310
    with urllib.request.urlopen(request):  # noqa: S310
        pass


class FaultProxy:
    """Passes requests on, unless a fault is planned for one: each fault strikes the next request of its method."""

    def __init__(self, upstream: str) -> None:
        self.faults: deque[tuple[str, str]] = deque()  # (method, a status, "drop", "slow", "lost", "late", "cut")
        self.seen: list[str] = []
        self.slow_s = 1.5
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, urlsplit(upstream).netloc))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def fault_for(self, method: str) -> str | None:
        self.seen.append(method)
        if self.faults and self.faults[0][0] == method:
            return self.faults.popleft()[1]
        return None

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler(proxy: FaultProxy, upstream: str) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(_Handler):
        its_proxy = proxy
        its_upstream = upstream

    return Handler


class _Handler(http.server.BaseHTTPRequestHandler):
    its_proxy: ClassVar[FaultProxy]
    its_upstream: ClassVar[str]

    def handle_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        fault = self.its_proxy.fault_for(self.command)
        if fault == "slow":
            time.sleep(self.its_proxy.slow_s)
        if fault in ("drop", "slow"):  # the request never arrives
            return
        if fault is not None and fault.isdigit():
            self._answer(int(fault), [], b"<Error><Code>Fault</Code></Error>")
            return
        status, headers, data = self._passed_on(body)
        if fault == "late":
            time.sleep(self.its_proxy.slow_s)
        if fault in ("lost", "late"):  # it arrived, and nobody hears of it
            return
        self._answer(status, headers, data[: len(data) // 2] if fault == "cut" else data)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = handle_request  # noqa: N815

    def _passed_on(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self.its_upstream)
        try:
            connection.request(self.command, self.path, body, dict(self.headers))
            response = connection.getresponse()
            return response.status, response.getheaders(), response.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes) -> None:
        self.send_response(status)
        for name, value in headers or [("Content-Length", str(len(data)))]:
            if name.lower() not in ("connection", "transfer-encoding", "date", "server"):
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        return


if __name__ == "__main__":
    serve_moto()
