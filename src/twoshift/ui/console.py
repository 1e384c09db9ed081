"""The paths of the console, and how each is guarded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from twoshift.endpoints.faults import fault_of
from twoshift.endpoints.known import told_openai
from twoshift.errors import Denied, Forbidden, NotFound, TwoshiftError
from twoshift.serve.deployments import Deployments
from twoshift.serve.http.app import App, Exchange, Face, RouteKind
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.operations import Alive
from twoshift.serve.keys import Keys
from twoshift.serve.ledger import Prices
from twoshift.serve.settings import ServeSettings
from twoshift.ui.ask_pages import AskPages
from twoshift.ui.calibration import CALIBRATION, calibration_page
from twoshift.ui.feed import Feed
from twoshift.ui.guards import Guards, secured, wants_page
from twoshift.ui.job_pages import JobPages
from twoshift.ui.now import columns_of, event_of, shown_of
from twoshift.ui.planner import PlannerPages
from twoshift.ui.rendering import ASSETS, render
from twoshift.ui.rollout_pages import move_rollout, rollout, rollouts
from twoshift.ui.sampler import DayStore, Sampler, Watched
from twoshift.ui.sessions import Sessions
from twoshift.ui.visit import Asked, FilesOf, Visit, html, redirect
from twoshift.ui.work_pages import batches, move_batch, move_schedule, move_stream, schedule, schedules, streams

__all__ = ["Console"]

_FOR_EVER = b"public, max-age=31536000, immutable"
_EVENTS = b"text/event-stream"
Page = Callable[[Visit], Awaitable[Reply]]
_WORK: tuple[tuple[str, str, Page], ...] = (
    ("GET", "/console/batches", batches),
    ("POST", "/console/batches/{batch}/{what}", move_batch),
    ("GET", "/console/streams", streams),
    ("POST", "/console/streams/{stream}/{what}", move_stream),
    ("GET", "/console/schedules", schedules),
    ("GET", "/console/schedules/{schedule}", schedule),
    ("POST", "/console/schedules/{schedule}/{what}", move_schedule),
    ("GET", "/console/rollouts", rollouts),
    ("GET", "/console/rollouts/{rollout}", rollout),
    ("POST", "/console/rollouts/{rollout}/{what}", move_rollout),
)


class Console:
    """Of one server, on the loop that serves."""

    def __init__(
        self,
        app: App,
        deployments: Deployments,
        settings: ServeSettings,
        keys: Keys,
        store: DayStore | None = None,
        files: FilesOf | None = None,
    ) -> None:
        """`files`: which of them somebody's jobs could read."""
        self._app, self._files = app, files
        self._jobs = JobPages(deployments, Prices(settings.price_of, settings.batch_price_share))
        self._sessions = Sessions(keys, is_tls=settings.tls_cert is not None)
        self._guards = Guards(self._sessions, (settings.host, *settings.console_hosts))
        self._feed = Feed()
        self.sampler = Sampler(deployments, self._tell, store)
        self._task: asyncio.Task[None] | None = None
        self._planner, self._asking = PlannerPages(deployments), AskPages(deployments)
        self._add_paths()

    def start(self) -> None:
        """Look at the deployments from now on."""
        self._task = asyncio.ensure_future(self.sampler.run())

    def close(self) -> None:
        """End every stream."""
        if self._task is not None:
            self._task.cancel()
        self._feed.close()

    def _tell(self, watched: Mapping[str, Watched], has_point: bool) -> None:
        self._feed.publish(
            lambda sight: {name: event_of(each, sight, has_point) for name, each in watched.items() if sight.sees(name)}
        )

    def _add_paths(self) -> None:
        self._add("GET", "/", self._first)
        self._add("GET", "/console/login", self._login_page)
        self._add("POST", "/console/login", self._login)
        self._add("POST", "/console/logout", self._logout)
        self._add("GET", "/console/assets/{name}", self._asset)
        self._add("GET", "/console/events", self._shown(self._events))
        self._add("GET", "/console/history/{name}", self._shown(self._history))
        for path, page in {**self._planner.pages, CALIBRATION: calibration_page}.items():
            self._add("GET", path, self._shown(page))
        for method, path, page in (*self._own_paths(), *_WORK):
            self._add(method, path, self._shown(page))

    def _own_paths(self) -> list[tuple[str, str, Page]]:
        pages = self._jobs
        return [
            ("GET", "/console/jobs", pages.list),
            ("POST", "/console/jobs", pages.submit),
            ("GET", "/console/jobs/new", pages.new),
            ("GET", "/console/jobs/{job}", pages.one),
            ("GET", "/console/jobs/{job}/report", pages.report),
            ("POST", "/console/jobs/{job}/{what}", pages.move),
            ("GET", "/console/ask", self._asking.form),
            ("POST", "/console/ask", self._asking.ask),
            ("POST", "/console/ask/chat", self._asking.chat),
        ]

    def _add(self, method: str, path: str, face: Face) -> None:
        guards, is_first = self._guards, path == "/"
        guard = guards.act if method == "POST" else guards.probe_or_look if is_first else guards.look
        about = next((each.about for each in self._app.routes if (each.method, each.path) == (method, path)), None)
        kind = RouteKind.PROBE if is_first else RouteKind.PLAIN
        self._app.add(method, path, face, told_openai, about, needs=guard, kind=kind)

    def _shown(self, page: Page) -> Face:
        """A page for those who may look; others log in first."""

        async def face(exchange: Exchange) -> Reply:
            session = self._sessions.find(exchange.request)
            if session is None:
                return redirect("/console/login")
            visit = Visit(self._app, exchange, session, self._files)
            try:
                if exchange.request.method == "POST" and session.read_only:
                    raise Forbidden("this login is read-only: to change something, log in again without Read-only")
                return await page(visit)
            except Asked as refused:
                return visit.problem(refused)
            except TwoshiftError as error:
                return visit.problem(fault_of(error))

        return face

    async def _first(self, exchange: Exchange) -> Reply:
        """A page for browsers; probes of KServe and others get what they know."""
        if not wants_page(exchange.request):
            return Reply(200, msgspec.json.encode(Alive()))
        return await self._shown(self._now)(exchange)

    async def _now(self, visit: Visit) -> Reply:
        sight = visit.session.sight
        seen = [each for name, each in sorted(self.sampler.watched.items()) if sight.sees(name)]
        return visit.page("now.html", deployments=[shown_of(each, sight) for each in seen])

    async def _events(self, visit: Visit) -> Reply:
        session = visit.session
        page = self._feed.page(session.caller.name, session.sight, lambda: self._sessions.is_valid(session))
        return secured(Reply(200, content_type=_EVENTS, stream=page, stream_bytes=None))

    async def _history(self, visit: Visit) -> Reply:
        name, sight = visit.matched["name"], visit.session.sight
        watched = self.sampler.watched.get(name)
        if watched is None or not sight.sees(name):
            raise NotFound("deployment", name, "the name of a deployment")
        points = await self.sampler.day(name) if visit.query.get("span") == "day" else [*watched.hour]
        return secured(Reply(200, msgspec.json.encode(columns_of(points, sight))))

    async def _asset(self, exchange: Exchange) -> Reply:
        found = ASSETS.get(exchange.matched["name"])
        if found is None:
            raise NotFound("asset", exchange.matched["name"], f"one of {', '.join(ASSETS)}")
        kind, body = found
        return secured(Reply(200, body, kind), cache=_FOR_EVER)

    async def _login_page(self, exchange: Exchange) -> Reply:
        if not self._sessions.needs_login:
            return redirect("/")
        return html(render("login.html", problem=""))

    async def _login(self, exchange: Exchange) -> Reply:
        form = Visit.unsigned_form(exchange.request)
        try:
            cookie = self._sessions.begin(exchange.request, form.get("key", "").strip(), "read_only" in form)
        except Denied as error:
            return html(render("login.html", problem=str(error)), 401)
        return redirect("/", (b"set-cookie", cookie))

    async def _logout(self, exchange: Exchange) -> Reply:
        session = self._sessions.find(exchange.request)
        if session is not None:
            _ = Visit(self._app, exchange, session).form  # only a form of the session ends it
        return redirect("/console/login", (b"set-cookie", self._sessions.end(exchange.request)))
