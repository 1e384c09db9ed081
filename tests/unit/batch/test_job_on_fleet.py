"""What a job sees of live requests."""

from __future__ import annotations

from twoshift.batch.job_on_fleet import JobOnFleet
from twoshift.batch.job_seats import LiveFleet
from twoshift.batch.settings import JobSettings


class Watched:
    """A job on a fleet whose time, pauses and live requests a test says."""

    def __init__(self) -> None:
        self.now_s, self.why = 100.0, ""
        self.ended: list[tuple[float, float]] = []
        settings = JobSettings(inputs=("x",), output="y", model="m")
        fleet = LiveFleet(list, lambda: sorted(self.ended))
        self.job = JobOnFleet(settings, fleet, lambda: self.now_s, lambda: 0, lambda: self.why)

    def at(self, now_s: float, why: str = "") -> None:
        self.now_s, self.why = now_s, why
        self.job.tick()

    def requests(self) -> tuple[int, int]:
        """That were seen beside the job and alone."""
        seen = self.job.impact()
        return seen.beside.requests if seen.beside else 0, seen.alone.requests if seen.alone else 0


def test_live_requests_are_seen_once_with_the_job_or_without_it() -> None:
    watched = Watched()
    watched.ended = [(99.0, 0.1), (101.0, 0.1), (101.0, 0.2)]  # the first was over before the job began
    watched.at(101.1)
    watched.at(101.4, "its owner has spent its day")
    watched.ended += [(101.45, 0.2), (102.0, 0.1)]  # one had begun beside the job
    watched.at(102.1, "its owner has spent its day")
    watched.at(103.0, "its owner has spent its day")
    assert watched.requests() == (2, 1)


def test_live_requests_that_other_processes_report_late_count_where_they_were() -> None:
    watched = Watched()
    watched.at(101.0)
    watched.at(101.3, "its owner has spent its day")
    watched.ended = [(100.9, 0.1), (101.2, 0.2), (101.7, 0.1)]
    watched.at(101.7)
    assert watched.requests() == (2, 1)
    watched.ended += [(101.65, 0.2)]
    watched.at(102.0)
    watched.at(102.3)
    assert watched.requests() == (2, 2)
