"""OpenTelemetry's traces, as a collector gets them."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from servers import Server, until

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("httptools")
pytestmark = pytest.mark.slow
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
MODEL = """
class Double:
    example = {"x": 1.0}

    def load(self):
        pass

    async def prepare(self, row):
        return row

    def predict(self, batch):
        if (batch["x"] < 0).any():
            raise ValueError("negative")
        return {"double": 2 * batch["x"]}
"""


class Collector:
    """Listens for OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

                body = self.rfile.read(int(self.headers["content-length"]))
                body = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
                sent = ExportTraceServiceRequest.FromString(body)
                assert self.path == "/v1/traces"
                collector.spans += [s for r in sent.resource_spans for scope in r.scope_spans for s in scope.spans]
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def test_a_request_is_a_trace_with_its_stages_under_the_clients_own(tmp_path: Path, collector: Collector) -> None:
    (tmp_path / "m.py").write_text(MODEL)
    words = [f"{tmp_path}/m.py:Double", "--slo-ms", "60000", "--otlp-endpoint", collector.address]
    server = Server(tmp_path / "home", *words)
    try:
        tensor = {"name": "x", "datatype": "FP64", "shape": [1], "data": [2.0]}
        parent = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        path = "/v2/models/Double/infer"
        assert server.ask("POST", path, {"inputs": [tensor]}, parent).status == 200
        assert server.ask("POST", path, {"inputs": [{**tensor, "data": [-1.0]}]}).status == 500
        server.process.terminate()
        assert server.process.wait(120) == 0  # what is left is sent as it ends
    finally:
        server.end()
    until(lambda: any(span.status.code == 2 for span in collector.spans))
    (whole,) = (s for s in collector.spans if s.trace_id.hex() == TRACE and s.parent_span_id.hex() == PARENT)
    assert whole.name == f"POST {path}"
    told = {each.key: each.value for each in whole.attributes}
    assert told["twoshift.model"].string_value == "Double"
    assert told["http.response.status_code"].int_value == 200
    stages = [s for s in collector.spans if s.parent_span_id == whole.span_id]
    assert {"lookup", "prepare", "forward"} <= {s.name for s in stages}
    for stage in stages:
        assert whole.start_time_unix_nano <= stage.start_time_unix_nano
        assert stage.end_time_unix_nano <= whole.end_time_unix_nano + 1_000_000
