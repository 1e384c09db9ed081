"""Jobs as they come in: looked at, and remembered once."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from twoshift.batch.allowance import Allowance
from twoshift.batch.claimed_jobs import ClaimedJobs
from twoshift.batch.inputs import resolve
from twoshift.batch.job_seats import LiveFleet
from twoshift.batch.kinds.known import kind_of
from twoshift.batch.running import HELD_S, MOST_AT_ONCE
from twoshift.batch.setting_values import AUTO, Mark
from twoshift.batch.settings import JobSettings, make_settings
from twoshift.declare import declared
from twoshift.errors import Broken, Inapplicable, InvalidInput, NotFound, TryLater
from twoshift.ports import JobRecord
from twoshift.runtime.devices import usable_threads
from twoshift.types import JobKindName, JobState
from twoshift.units import parse_duration

__all__ = ["JobIntake", "settings_on"]

_QUEUED = f"at most {MOST_AT_ONCE} jobs run at once on a server"
_OF_BATCHES = ("endpoint", "due_unix_s", "adapters")
_NOT_THEIRS = [name for name, each in declared(JobSettings).items() if Mark.HERE in each.marks]


class JobIntake:
    """Any thread may call it."""

    def __init__(
        self,
        jobs: ClaimedJobs,
        fleet_of: Callable[[str], LiveFleet],
        allowance_of: Callable[[str], Allowance],
        check_notify: Callable[[Sequence[str], str], None],
        begin: Callable[[], None],  # what waits, now that there is more
    ) -> None:
        self._jobs, self._fleet_of, self._allowance_of = jobs, fleet_of, allowance_of
        self._check_notify, self._begin = check_notify, begin
        self._adding = threading.Lock()  # one at a time is counted and added

    def submit(self, data: dict[str, Any], owner: str = "", job_id: str | None = None) -> JobRecord:
        """A new job, or the very same one that is not over yet, or of that id; raises InvalidInput, NotFound."""
        if job_id is not None:
            with contextlib.suppress(NotFound):
                return self._jobs.store.get(job_id)
        settings, allowed = self._settings(data, owner), self._allowance_of(owner)
        allowed.check_output(settings.output)  # before anything is said about what is there
        now_s = time.time()
        encoded = msgspec.to_builtins(settings)
        if (same := self._same(settings, owner)) is not None:
            return same
        allowed.check_open(self._jobs.store.open_jobs(owner))
        _look(settings, allowed)
        new_id = job_id or f"job-{uuid.uuid4().hex[:12]}"
        due_unix_s = None if settings.window is None else now_s + parse_duration(settings.window, "window")
        record = JobRecord(new_id, encoded, JobState.QUEUED, now_s, now_s, _QUEUED, owner=owner, due_unix_s=due_unix_s)
        with self._adding:  # of several that come at once, each sees those before it
            if (same := self._same(settings, owner)) is not None:
                return same
            allowed.check_open(self._jobs.store.open_jobs(owner))
            self._jobs.store.add(record)
        self._jobs.store.note(
            record.id, f"{settings.adapter or settings.model} over {', '.join(settings.inputs)} to {settings.output}"
        )
        self._begin()
        return self._jobs.store.get(record.id)

    def _same(self, settings: JobSettings, owner: str) -> JobRecord | None:
        """The very same job that is not over yet; raises InvalidInput where another one has its folder."""
        same = self._jobs.store.of_output(settings.output)
        if same is None:
            return None
        if same.owner != owner:
            raise InvalidInput("output", settings.output, "another output folder: another job uses this folder")
        if same.kind is JobKindName.STREAM:
            raise InvalidInput(
                "output", settings.output, f"another output folder: stream {same.id} writes to this folder"
            )
        before = msgspec.structs.replace(msgspec.convert(same.settings, JobSettings), workers=settings.workers)
        if before != settings:
            raise InvalidInput("output", settings.output, f"another output folder: job {same.id} writes to this folder")
        return same

    def add(self, job_id: str, settings: JobSettings, owner: str) -> None:
        """A job of the server's own, once, however often it is asked for."""
        now_s = time.time()
        record = JobRecord(
            job_id, msgspec.to_builtins(settings), JobState.QUEUED, now_s, now_s, _QUEUED,
            owner=owner, due_unix_s=settings.due_unix_s, kind=settings.kind,
        )  # fmt: skip
        if self._jobs.store.add(record):
            self._begin()

    def check(self, data: dict[str, Any], owner: str = "") -> None:
        """Whether such a job could be submitted, as far as its settings tell; raises InvalidInput, NotFound."""
        settings, allowed = self._settings(data, owner), self._allowance_of(owner)
        allowed.check_output(settings.output)
        for place in settings.inputs:
            allowed.blobs_for(place)

    def _settings(self, data: dict[str, Any], owner: str) -> JobSettings:
        for name in _NOT_THEIRS:
            if data.get(name) is not None:
                by_name = "on a server: give the name of the adapter in place of the model's name"
                why = by_name if name == "adapter" else "on a server: the job runs on the server's own replicas"
                raise Inapplicable(name, data[name], why)
        for name in _OF_BATCHES:
            if data.get(name) is not None:
                raise Inapplicable(name, data[name], "in a job: to run a file of requests, use POST /v1/batches")
        if data.get("workers") == AUTO:
            accepted = "a number such as 1; a server adds replicas by itself, up to `scale.batch_replicas` of the model"
            raise InvalidInput("workers", AUTO, accepted)
        settings = make_settings(data)
        self._check_notify(settings.notify, owner)
        fleet = self._fleet_of(settings.model)
        settings = settings_on(fleet, settings)
        settings.check_preparers(usable_threads())
        _check_workers(settings, fleet)
        return settings


def settings_on(fleet: LiveFleet, settings: JobSettings) -> JobSettings:
    """With the model by the name that it has there; raises TryLater where it is away, InvalidInput for its kind."""
    if why := fleet.why_away():
        raise TryLater(why, HELD_S)
    if fleet.adapter is not None:  # a name that clients have for both
        settings = msgspec.structs.replace(settings, model=fleet.model, adapter=fleet.adapter)
    if fleet.version is not None:  # it stays with this version, wherever an alias points later
        settings = msgspec.structs.replace(settings, model=fleet.version)
    settings.check_model(fleet.is_llm)
    return settings


def _check_workers(settings: JobSettings, fleet: LiveFleet) -> None:
    """Raises InvalidInput where the model may not have so many replicas for a job."""
    asked, most = settings.first_workers, fleet.most_workers
    if asked > most:
        more = "to allow more, raise `max_replicas` and `scale.batch_replicas` of the model on the server"
        raise InvalidInput(
            "workers", asked, f"at most {most}, the number of replicas that {settings.model} may have; {more}"
        )


def _look(settings: JobSettings, allowed: Allowance) -> None:
    """What is wrong with its input is told at once; raises InvalidInput."""
    try:
        files = resolve(settings.inputs, allowed.blobs_for, settings.input_format)
        kind_of(settings).first_look(files, allowed.blobs_for, settings)
    except Broken as error:  # damaged, or replaced just now
        raise InvalidInput("inputs", ", ".join(settings.inputs), f"files that can be read ({error})") from error
