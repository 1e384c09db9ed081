"""The planner without a server of models: a small page on this machine, with nothing but the standard library."""

from __future__ import annotations

import http.server
import urllib.parse
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from twoshift._version import __version__
from twoshift.errors import InvalidInput
from twoshift.report.style import CHART_CSS, PALETTE_CSS
from twoshift.serve.measured_curves import MeasuredCurves
from twoshift.serve.plan_settings import read_plan
from twoshift.serve.planning import make_plan, plan_data
from twoshift.ui.plan_page import PlanPaths, figures_markup, page_markup

__all__ = ["PlanServer"]

_ASSETS = Path(__file__).parent / "assets"
_PATHS = PlanPaths("/", "/figures", "/v1/plan")
_HTML, _JSON = "text/html; charset=utf-8", "application/json"
_LONGEST = 8192  # of a request's target
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Plan · Twoshift</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/plan.css">
<script src="/plan.js" defer></script>
</head>
<body>
<main id="main"><h1>Plan</h1>{made}<p class="quiet">twoshift {version}</p></main>
</body>
</html>
"""


class PlanServer(http.server.ThreadingHTTPServer):
    """Listens on 127.0.0.1; raises OSError where the port is taken."""

    daemon_threads = True

    def __init__(self, port: int, curves: MeasuredCurves) -> None:
        super().__init__(("127.0.0.1", port), partial(_Handler, curves))
        self.address = f"http://127.0.0.1:{self.server_address[1]}/"


class _Handler(http.server.BaseHTTPRequestHandler):
    server_version, sys_version = "twoshift", ""
    timeout = 10.0  # of a connection that says nothing

    def __init__(self, curves: MeasuredCurves, *given: Any) -> None:
        self._curves = curves
        super().__init__(*given)

    def do_GET(self) -> None:
        """A page, its parts, or the plan as JSON."""
        host = (self.headers.get("host") or "").rpartition(":")[0]
        if host not in ("127.0.0.1", "localhost"):  # another site's name may be made to point here
            self._reply(403, "text/plain", b"open this page at http://127.0.0.1 instead")
            return
        path, _, query = self.path.partition("?")
        try:
            given = dict(urllib.parse.parse_qsl(query[:_LONGEST], keep_blank_values=True, max_num_fields=100))
        except ValueError:
            given = {"query": query[:80]}
        self._reply(*self._made(path, given))

    do_HEAD = do_GET  # noqa: N815 - as the library calls it

    def _made(self, path: str, given: dict[str, str]) -> tuple[int, str, bytes]:
        match path:
            case "/":
                made = page_markup(given, self._curves, _PATHS)
                return 200, _HTML, _PAGE.format(made=made, version=__version__).encode()
            case "/figures":
                return 200, _HTML, figures_markup(given, self._curves).encode()
            case "/v1/plan":
                return self._data(given)
            case "/plan.css":
                sheets = [(_ASSETS / name).read_text(encoding="utf-8") for name in ("console.css", "plan.css")]
                return 200, "text/css; charset=utf-8", "".join((PALETTE_CSS, CHART_CSS, *sheets)).encode()
            case "/plan.js":
                return 200, "text/javascript; charset=utf-8", (_ASSETS / "plan.js").read_bytes()
            case _:
                return 404, "text/plain", b"not found"

    def _data(self, given: dict[str, str]) -> tuple[int, str, bytes]:
        try:
            return 200, _JSON, msgspec.json.encode(plan_data(make_plan(read_plan(given), self._curves)))
        except InvalidInput as error:
            return 400, _JSON, msgspec.json.encode({"error": {"message": str(error), "param": error.field}})

    def _reply(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, "content-type": kind, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Nobody reads it."""
