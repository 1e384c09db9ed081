"""A job that runs on a server, and what the store is told of it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twoshift.batch.allowance import Allowance
from twoshift.batch.coordinator import Ending
from twoshift.batch.engine_pool import EnginePool
from twoshift.batch.job import Job, JobResult
from twoshift.batch.job_forecast import JobForecast
from twoshift.batch.job_on_fleet import JobOnFleet
from twoshift.batch.job_seats import Payer, Used
from twoshift.batch.progress import NOTHING_YET, JobSnapshot
from twoshift.policy.job_states import JobMove
from twoshift.registry.names import parse_ref
from twoshift.units import counted

__all__ = ["HELD_S", "MOST_AT_ONCE", "HostedJob", "RunningJobs", "move_after"]

MOST_AT_ONCE = 16
MOST_HELD = 128  # besides: more of those that are held back stay in the queue
MOST_OF_ONE = 12  # tenant, of either kind: the other places are for others, who may have less time
MOST_PUT_OFF = 1000  # jobs of an owner that are looked at together where some cannot begin
HELD_S = 30.0  # after which one that is held back, and has no place, is looked at again


@dataclass(slots=True)
class HostedJob:
    """A job with a thread."""

    job: Job
    pool: EnginePool
    lane: JobOnFleet
    thread: threading.Thread
    payer: tuple[str, str]  # its owner, and the model
    asked_workers: int = 1  # replicas that it asks for while it runs
    now: JobSnapshot | None = None  # that the store has not heard of yet
    last: JobSnapshot = NOTHING_YET
    is_ours: bool = True  # False: another server goes on with it
    ending: Ending | None = None  # of this run
    handed_back: str = ""  # to the queue, and why
    predicted_s: float | None = None  # that this run would take, as it was said first
    forecast: JobForecast = field(default_factory=JobForecast)

    @property
    def billed(self) -> Payer:
        """Who has had the device time, of which version: a job has one version, and none before it is loaded."""
        ref = None if self.job.model is None else parse_ref(self.job.model.name)
        return *self.payer, "1" if ref is None or ref.version is None else str(ref.version)

    def heard(self, now: JobSnapshot) -> None:
        """How far it is; who tells the store is another: a job does not wait for the database."""
        self.lane.follow(now)
        self.forecast.heard(now, bool(self.lane.why_held))
        self.now = self.last = now
        if self.predicted_s is None and now.left_s is not None:
            self.predicted_s = now.elapsed_s + now.left_s

    def progress(self, now: JobSnapshot) -> dict[str, Any]:
        """For people and programs that ask."""
        used = self.lane.used()
        return {
            "shards": now.shards,
            "shards_done": now.shards_done,
            "share": now.share,
            "rows": now.rows_before + now.rows,
            "rows_total": now.rows_total,
            "rows_committed": now.rows_before + now.committed_rows,
            "errors": now.errors_before + now.errors,
            "rows_per_s": now.rows_per_s,
            "elapsed_s": now.elapsed_s,
            "left_s": now.left_s,
            "predicted_s": self.predicted_s,
            "chance": now.outlook.chance,
            "harvested_s": used.device_s,
            "riding_s": used.riding_s,
            "held": self.lane.why_held,
            "loaded": _loaded(self.job),
            "ending": self.ending,
        }


class RunningJobs:
    """Jobs with a thread, until the store knows how they ended, and those that wait a while. Any thread may call it."""

    def __init__(self) -> None:
        self._jobs: dict[str, HostedJob] = {}
        self._later_s: dict[str, float] = {}  # jobs that are to wait before they are tried again
        self._ended: dict[Payer, Used] = {}  # what jobs that run no more have had
        self._lock = threading.Lock()  # guards the three above

    def __contains__(self, job_id: str) -> bool:
        with self._lock:
            return job_id in self._jobs

    def add(self, job_id: str, job: HostedJob) -> None:
        """It begins."""
        with self._lock:
            self._later_s.pop(job_id, None)
            self._jobs[job_id] = job

    def get(self, job_id: str) -> HostedJob | None:
        """None where it does not run."""
        with self._lock:
            return self._jobs.get(job_id)

    def all(self) -> dict[str, HostedJob]:
        """As they are now."""
        with self._lock:
            return dict(self._jobs)

    def ended(self, job_id: str) -> None:
        """What it has had still counts."""
        with self._lock:
            gone = self._jobs.pop(job_id)
            payer = gone.billed
            self._ended[payer] = self._ended.get(payer, Used()).plus(gone.lane.used())

    def used(self) -> dict[Payer, Used]:
        """What jobs have had of the devices since this start."""
        with self._lock:
            found = dict(self._ended)
            for each in self._jobs.values():
                found[each.billed] = found.get(each.billed, Used()).plus(each.lane.used())
        return found

    def outlooks(self) -> Counter[tuple[str, str]]:
        """How many there are, by model and by whether they will end within their windows."""
        return Counter((each.lane.model, str(each.last.outlook.verdict)) for each in self.all().values())

    def try_later(self, job_id: str, wait_s: float) -> None:
        """It is to wait so long."""
        with self._lock:
            self._later_s[job_id] = time.monotonic() + wait_s

    def try_all(self) -> None:
        """None is to wait any more."""
        with self._lock:
            self._later_s.clear()

    def hold_off(self, job_id: str) -> None:
        """It is to wait until what holds it back may have passed."""
        self.try_later(job_id, HELD_S)

    def not_now(self) -> tuple[list[str], int]:
        """Those that run or are to wait; and how many others of an owner are to be looked at."""
        now_s = time.monotonic()
        with self._lock:
            self._later_s = {job_id: at_s for job_id, at_s in self._later_s.items() if at_s > now_s}
            return [*self._jobs, *self._later_s], MOST_PUT_OFF if self._later_s else MOST_AT_ONCE

    def owners(self, held: bool = False) -> Counter[str]:
        """How many jobs of each are at work; or are held back."""
        with self._lock:
            return Counter(each.payer[0] for each in self._jobs.values() if bool(each.lane.why_held) is held)

    def has_room(self) -> bool:
        """For another one."""
        with self._lock:
            at_work = sum(not each.lane.why_held for each in self._jobs.values())
            # Those that are handed back need a moment
            return at_work < MOST_AT_ONCE and len(self._jobs) < MOST_HELD + 2 * MOST_AT_ONCE

    def has_room_for_held(self, owner: str) -> bool:
        """For another one of theirs that is held back."""
        held = self.owners(held=True)
        return held.total() < MOST_HELD and held[owner] < _most_held(owner)

    def why_waits(self, owner: str, allowed: Allowance) -> str:
        """Why no other job of theirs begins; empty where one may."""
        at_work = self.owners()[owner]
        why = allowed.why_waits(at_work + self.owners(held=True)[owner])
        if owner and at_work >= MOST_OF_ONE:
            why = why or f"jobs of other tenants start first: this tenant already has {counted(at_work, 'running job')}"
        return why

    def hand_back(self) -> None:
        """To the queue, those that are held back and have no place for it: they came in when they were not."""
        seen, stopped = Counter[str](), list[HostedJob]()
        with self._lock:
            for each in self._jobs.values():
                owner = each.payer[0]
                if not each.lane.why_held or each.handed_back:
                    continue
                if seen.total() >= MOST_HELD or seen[owner] >= _most_held(owner):
                    each.handed_back = each.lane.why_held
                    stopped.append(each)
                else:
                    seen[owner] += 1
        for each in stopped:
            each.job.ask_to_stop(now=True, why=each.handed_back)

    def hand_back_of(self, model: str, why: str) -> list[HostedJob]:
        """To the queue, those of a model that goes."""
        stopped = [each for each in self.all().values() if each.payer[1] == model]
        for each in stopped:
            each.handed_back = each.handed_back or why
            each.job.ask_to_stop(now=True, why=why)
        return stopped


def _most_held(owner: str) -> int:
    return MOST_OF_ONE if owner else MOST_HELD


def _loaded(job: Job) -> dict[str, str] | None:
    """The model as another run can have it."""
    if job.model is None:
        return None
    path, colon, name = job.model.name.partition(".py:")
    path = f"{path}{colon[:-1]}"
    found = str(Path(path).absolute()) if Path(path).exists() else path
    loaded = {"model": f"{found}:{name}" if colon else found, "precision": job.model.precision}
    adapter = [str(Path(each.path).absolute()) for each in job.model.adapters if job.settings.adapter is not None]
    return loaded | ({"adapter": adapter[0]} if adapter else {})


def move_after(result: JobResult) -> tuple[JobMove, str]:
    """What becomes of a job whose run has ended, and why."""
    match result.ending:
        case Ending.DONE:
            return JobMove.FINISH, ""
        case Ending.STOPPED:
            return JobMove.STOP, "the server was stopped"  # unless the store knows better
        case Ending.TOO_MANY_ERRORS:
            failed = result.last.errors_before + result.last.errors
            return (
                JobMove.FAIL,
                f"{failed:,} rows failed, more than `max_errors` allows; committed parts are kept",
            )
        case Ending.LOW_RECALL:
            return (
                JobMove.FAIL,
                "the recall of the index is too low" if result.summary is None else result.summary.reason,
            )
        case Ending.DEAD_SHARDS:
            dead = (f"shard {shard} failed: {why}" for shard, why in result.dead.items())
            return JobMove.FAIL, next(dead, "; ".join(result.failures) or "shards of the job failed")
