"""What the front processes have counted, together; of those that are no more, too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from statistics import fmean

from twoshift.fronts.messages import CandidateReport, FrontReport
from twoshift.serve.counts import CountsOfProcesses, MetricCounts, TenantCounts
from twoshift.serve.deployments import Deployments
from twoshift.serve.host import HostFacts
from twoshift.serve.tenants import Tenant

__all__ = ["FrontCounts"]


class FrontCounts:
    """Told in the group's thread, read in any: each change replaces what readers see."""

    def __init__(self, models: Deployments, tenants: dict[str, Tenant], refresh: Callable[[], Awaitable[None]]) -> None:
        """`refresh` asks the fronts, and waits until they have been heard."""
        self._models, self._tenants, self._refresh = models, tenants, refresh
        self._reports: dict[int, FrontReport] = {}  # of those that live
        self._metrics: dict[str, CountsOfProcesses[MetricCounts]] = {}  # by deployment
        self._candidates: dict[str, CountsOfProcesses[MetricCounts]] = {}  # by rollout
        self._of_tenants: dict[str, CountsOfProcesses[TenantCounts]] = {}
        self.in_peace = True  # no front has left a request without a reply

    def heard(self, front: int, report: FrontReport) -> None:
        """Of one that lives."""
        self._reports = {**self._reports, front: report}
        for name, counts in report.metrics.items():
            known = self._metrics.setdefault(name, CountsOfProcesses(MetricCounts()))
            known.heard(front, counts)
            if (deployment := self._models.all.get(name)) is not None:
                deployment.metrics.elsewhere = known.total()
                deployment.metrics.heard_recent(report.recent.get(name, ()))
        for name, candidate in report.candidates.items():
            self._heard_candidate(front, name, candidate)
        for name, tenant_counts in report.tenants.items():
            of_tenant = self._of_tenants.setdefault(name, CountsOfProcesses(TenantCounts()))
            of_tenant.heard(front, tenant_counts)
            self._tenants[name].elsewhere = of_tenant.total()

    def _heard_candidate(self, front: int, name: str, report: CandidateReport) -> None:
        deployment = self._models.all.get(name)
        split = None if deployment is None else deployment.split
        if split is None or split.salt != report.rollout:  # it is over by now
            return
        for version, seen in ((split.stable, report.stable), (split.candidate, report.candidate)):
            if version.watch is not None:
                version.watch.heard(seen)
        if split.shadow is not None:
            split.shadow.heard(report.compared, report.differences)
        known = self._candidates.setdefault(report.rollout, CountsOfProcesses(MetricCounts()))
        known.heard(front, report.counts)
        split.counted.elsewhere = known.total()

    def ended(self, front: int, draining: bool) -> None:
        """What it has counted stays counted."""
        report = self._reports.get(front)
        if draining:
            self.in_peace &= report is not None and report.drained is True
        self._reports = {number: each for number, each in self._reports.items() if number != front}
        for each in (*self._metrics.values(), *self._candidates.values(), *self._of_tenants.values()):
            each.ended(front)

    async def refresh(self) -> None:
        """Until what they have counted by now is known here."""
        await self._refresh()

    def hosts(self) -> list[HostFacts]:
        """How each is."""
        return [each.host for each in self._reports.values()]

    @property
    def one_request_s(self) -> float:
        """What a request costs the front that has it; 0 before there were enough to tell."""
        known = [each.request_s for each in self.hosts() if each.request_s]
        return fmean(known) if known else 0.0

    @property
    def request_s(self) -> float:
        """The same, of the time of all fronts together."""
        return self.one_request_s / max(1, len(self._reports))

    def costs(self) -> dict[str, float]:
        """Of one of them, the one that has the most to do."""
        return max(self.hosts(), key=lambda each: each.inside, default=HostFacts()).costs

    def rows_per_request(self, deployment: str) -> float:
        """On the average, of late."""
        found = [each.rows_per_request.get(deployment) for each in self._reports.values()]
        known = [each for each in found if each is not None]
        return fmean(known) if known else 1.0
