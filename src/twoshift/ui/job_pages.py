"""Jobs: the list, one of them, and a new one with what it would take."""

from __future__ import annotations

import urllib.parse
from typing import Any

from twoshift.errors import Forbidden
from twoshift.serve.deployments import Deployments
from twoshift.serve.http.messages import Reply
from twoshift.serve.keys import Access
from twoshift.serve.ledger import BATCH, Prices
from twoshift.serve.llm.language_model import is_language_model
from twoshift.ui.model_rows import is_field, takes_texts
from twoshift.ui.visit import Asked, Visit, api_path, redirect, sealed

__all__ = ["JobPages"]

_LISTED = 50
_MOVES = {
    "queued": ("pause", "cancel"),
    "running": ("pause", "cancel"),
    "paused": ("resume", "cancel"),
    "failed": ("resume",),
}
_TEXTS = ("string", "large_string")
_OPEN = ("queued", "running", "paused")
_NOT_YET: dict[str, Any] = {  # of a job that has not begun
    "rows": 0, "rows_total": None, "errors": 0, "rows_per_s": None, "harvested_s": None, "riding_s": None,
    "elapsed_s": None, "predicted_s": None, "ending": None,
}  # fmt: skip


class JobPages:
    """Through the same API as every other client."""

    def __init__(self, deployments: Deployments, prices: Prices) -> None:
        self._deployments, self._prices = deployments, prices

    async def list(self, visit: Visit) -> Reply:
        """The newest first."""
        found = await visit.get("jobs", limit=_LISTED, after=visit.query.get("after"))
        jobs = [self._job(each, visit) for each in found["data"]]
        more = jobs[-1]["id"] if len(jobs) == _LISTED else None
        return visit.page("jobs.html", jobs=jobs, more=more, may_submit=visit.session.may(Access.BATCH))

    async def one(self, visit: Visit, refused: Asked | None = None) -> Reply:
        """With its failures and its log; and why something could not be done with it."""
        job_id = visit.matched["job"]
        job = await visit.get("jobs", job_id)
        log, failures = (await visit.get("jobs", job_id, "log"))["data"], None
        if (job["progress"] or {}).get("errors"):
            failures = await _or_none(visit, job_id, "failures")
        status, problem = (200, "") if refused is None else (refused.status, str(refused))
        about = {"job": self._job(job, visit), "log": log[-100:], "failures": failures}
        return visit.page("job.html", status, problem=problem, **about)

    async def report(self, visit: Visit) -> Reply:
        """As the job has left it."""
        return sealed(await visit.reply("GET", api_path("jobs", visit.matched["job"], "report")))

    async def move(self, visit: Visit) -> Reply:
        """Pause, resume, cancel."""
        job_id, what = visit.matched["job"], visit.matched["what"]
        _ = visit.form
        try:
            await visit.ask("POST", api_path("jobs", job_id, what))
        except Asked as refused:
            return await self.one(visit, refused)
        return redirect(f"/console/jobs/{urllib.parse.quote(job_id, safe='')}")

    async def new(self, visit: Visit) -> Reply:
        """First the model and the input, then its columns and what the job would take."""
        if not visit.session.may(Access.BATCH):
            raise Forbidden(
                "this login cannot submit jobs: log in again with a key of the scope batch, and do not select Read-only"
            )
        return await self._form(visit, visit.query)

    async def submit(self, visit: Visit) -> Reply:
        """Starts it; what is wrong with it is said in the form."""
        given = visit.form
        try:
            made = await visit.ask("POST", "/v1/jobs", _settings(given))
        except Asked as refused:
            return await self._form(visit, given, refused)
        return redirect(f"/console/jobs/{urllib.parse.quote(made['id'], safe='')}")

    async def _form(self, visit: Visit, given: dict[str, str], refused: Asked | None = None) -> Reply:
        look, problem = None, "" if refused is None else str(refused)
        models = self._models(visit)
        given = {**given, "model": given.get("model") or (models[0][0] if models else "")}
        if inputs := _inputs(given):
            try:
                asked = {"inputs": inputs, "model": given["model"] or None}
                look = await visit.ask("POST", "/v1/jobs/estimate", asked)
            except Asked as error:
                problem = problem or str(error)
        is_llm = given["model"] in [name for name, generates in models if generates]
        files = await visit.files() if look is None else []
        status = 200 if refused is None else refused.status
        about = {"models": models, "given": given, "look": look, "is_llm": is_llm, "files": files}
        about |= self._chosen(given, [] if look is None else look["columns"])
        return visit.page("new_job.html", status, problem=problem, **about)

    def _chosen(self, given: dict[str, str], columns: list[dict[str, str]]) -> dict[str, Any]:
        """The text column and the columns for the model: as they were chosen, else as the model takes them."""
        model = self._deployments.all.get(given["model"])
        info = None if model is None or model.serving is None else model.info
        texts = [each["name"] for each in columns if each["type"] in _TEXTS] if takes_texts(info) else []
        fields = [each["name"] for each in columns if is_field(info, each["name"])]
        if "text" in given:  # the form was sent already
            fields = [each["name"] for each in columns if f"column.{each['name']}" in given]
        return {"text": given.get("text", next(iter(texts), "")), "fields": fields}

    def _models(self, visit: Visit) -> list[tuple[str, bool]]:
        sight = visit.session.sight
        return [
            (name, each.serving is not None and is_language_model(each.backend))
            for name, each in sorted(self._deployments.items())
            if sight.sees(name)
        ]

    def _job(self, job: dict[str, Any], visit: Visit) -> dict[str, Any]:
        """As the templates have it."""
        done, settings = {**_NOT_YET, **(job["progress"] or {})}, job["settings"]
        model = str(settings.get("adapter") or settings["model"])
        deployed = model if model in self._deployments.all else model.partition(":")[0]
        has_window = settings.get("window") or settings.get("due_unix_s")  # the latter of a batch
        usd = self._usd(deployed, done.get("harvested_s"))
        share = done.get("share") or (1.0 if job["state"] == "done" else 0.0)
        return {
            **job,
            "done": done,
            "model": model,
            "share": share,
            "usd": usd,
            "is_open": job["state"] in _OPEN,
            "usd_in_all": usd / share if usd is not None and 0 < share < 1 else usd,
            "left_s": done.get("left_s") if job["state"] == "running" else None,
            "chance": done.get("chance") if job["state"] in _OPEN and has_window else None,
            "is_batch": settings.get("endpoint") is not None,
            "moves": _MOVES.get(job["state"], ()) if visit.session.may(Access.BATCH) else (),
        }

    def _usd(self, model: str, device_s: float | None) -> float | None:
        if device_s is None or model not in self._deployments.all:
            return None
        return self._prices.usd(BATCH, model, device_s)


async def _or_none(visit: Visit, job_id: str, what: str) -> Any:
    """What is not there is not shown."""
    try:
        return await visit.get("jobs", job_id, what)
    except Asked:
        return None


def _inputs(given: dict[str, str]) -> list[str]:
    return [each.strip() for each in given.get("inputs", "").splitlines() if each.strip()]


def _settings(given: dict[str, str]) -> dict[str, Any]:
    """Keys of a job file: what was left empty is not said."""
    plain = {name: given.get(name, "").strip() for name in ("model", "output", "text", "prompt", "window", "hours")}
    made: dict[str, Any] = {name: value for name, value in plain.items() if value}
    keep = [name.removeprefix("keep.") for name in given if name.startswith("keep.")]
    columns = [name.removeprefix("column.") for name in given if name.startswith("column.")]
    made |= {"inputs": _inputs(given)} | ({"keep": keep} if keep else {})
    return made | ({"columns": columns} if columns and not made.get("text") else {})
