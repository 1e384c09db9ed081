"""One request for a page: who asks, and what the server's own API says to them."""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from twoshift.endpoints.faults import Fault
from twoshift.errors import Forbidden, TwoshiftError
from twoshift.serve.http.app import App, Exchange
from twoshift.serve.http.messages import Reply, Request
from twoshift.serve.keys import Caller
from twoshift.ui.guards import secured
from twoshift.ui.rendering import render
from twoshift.ui.sessions import Session, is_same

__all__ = ["Asked", "Visit", "api_path", "html", "redirect", "sealed"]

_KEPT = (b"content-security-policy", b"x-content-type-options", b"retry-after", b"retry-after-ms", b"server-timing")
_HTML = b"text/html; charset=utf-8"
_MOST_FIELDS = 1000
FilesOf = Callable[[Caller], Awaitable[Sequence[str]]]  # that a job of somebody could read


async def _no_files(_: Caller) -> Sequence[str]:
    return ()


class Asked(TwoshiftError):
    """The API has refused something."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Visit:
    """All that is shown comes from here: the API knows keys, scopes and tenants, and the console adds nothing."""

    def __init__(self, app: App, exchange: Exchange, session: Session, files: FilesOf | None = None) -> None:
        self._app, self._request, self._files = app, exchange.request, files or _no_files
        self.session, self.matched = session, exchange.matched
        self._form: dict[str, str] | None = None

    @property
    def query(self) -> dict[str, str]:
        """What stands behind the path; of what is said twice, the last."""
        return _fields(self._request.target.partition(b"?")[2].decode("latin-1"))

    @staticmethod
    def unsigned_form(request: Request) -> dict[str, str]:
        """Of somebody who has no session yet."""
        return _fields(bytes(request.body).decode("utf-8", "replace"))

    @property
    def form(self) -> dict[str, str]:
        """What was sent; raises Forbidden where it is no form of this session."""
        if self._form is None:
            found = self.unsigned_form(self._request)
            if not is_same(self.session.token, found.pop("token", "")):
                raise Forbidden("the form does not belong to this session: load the page again")
            self._form = found
        return self._form

    def script(self) -> bytes:
        """What a script has sent; raises Forbidden where it does not know the session's token."""
        if not is_same(self.session.token, self._request.header(b"x-console-token") or ""):
            raise Forbidden("the request does not come from a page of this session: load the page again")
        return bytes(self._request.body)

    async def reply(self, method: str, path: str, body: bytes = b"") -> Reply:
        """Of the server's own API, as it is."""
        headers = {b"content-type": b"application/json"}
        request = Request(method, path.encode(), headers, body, time.monotonic())
        return await self._app.ask_as(self.session.caller, request)

    async def ask(self, method: str, path: str, given: Any = None) -> Any:
        """The same as JSON; raises Asked where it refuses."""
        reply = await self.reply(method, path, b"" if given is None else msgspec.json.encode(given))
        found = msgspec.json.decode(reply.body) if reply.body else {}
        if reply.status >= 400:
            raise Asked(reply.status, str(found.get("error", {}).get("message", "the request failed")))
        return found

    async def get(self, *parts: str, **query: Any) -> Any:
        """A path of parts, each escaped."""
        asked = urllib.parse.urlencode({name: each for name, each in query.items() if each is not None})
        return await self.ask("GET", api_path(*parts) + (f"?{asked}" if asked else ""))

    async def files(self) -> Sequence[str]:
        """That this tenant's jobs may read, as far as its roots are folders of their own."""
        return await self._files(self.session.caller)

    def page(self, template: str, status: int = 200, **given: Any) -> Reply:
        """In the console's frame."""
        about = {"session": self.session, "path": self._request.path, "problem": "", "done": ""}
        return html(render(template, **{**about, **given}), status)

    def problem(self, fault: Fault | Asked) -> Reply:
        """An error as a page."""
        message = fault.message if isinstance(fault, Fault) else str(fault)
        return self.page("problem.html", fault.status, problem=message)


def api_path(*parts: str) -> str:
    """/v1/... of names as they are."""
    return "/v1/" + "/".join(urllib.parse.quote(each, safe="") for each in parts)


def html(body: bytes, status: int = 200) -> Reply:
    """A page as it is sent."""
    return secured(Reply(status, body, _HTML))


def sealed(reply: Reply) -> Reply:
    """What the API has replied, with its own bounds; it is a new reply, since this one is finished once more."""
    kept = [(name, value) for name, value in reply.headers if name in _KEPT]
    return Reply(
        reply.status, reply.body, reply.content_type, kept, stream=reply.stream, stream_bytes=reply.stream_bytes
    )


def redirect(path: str, *headers: tuple[bytes, bytes]) -> Reply:
    """To a page of ours, with GET."""
    return secured(Reply(303, headers=[(b"location", path.encode()), *headers]))


def _fields(text: str) -> dict[str, str]:
    try:
        return dict(urllib.parse.parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        return {}
