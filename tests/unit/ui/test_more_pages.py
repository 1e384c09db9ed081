"""Rollouts, and questions to a model: what each page shows, to whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="the serve extra is not installed")
pytest.importorskip("httptools", reason="the serve extra is not installed")

from console_app import HOSTILE, ConsoleApp, console_app

from twoshift.policy.rollout_values import Comparison
from twoshift.rollout_ports import RolloutEvent, RolloutRecord
from twoshift.serve.evidence_curve import EvidenceCurve, EvidencePoint
from twoshift.serve.http.deployments import add_deployments
from twoshift.serve.http.openai import add_openai
from twoshift.serve.http.scoring import add_scoring

KEYS = {
    "root": {"scopes": ("admin",)},
    "dora": {"tenant": "red", "scopes": ("deploy",), "models": ("m",)},
    "alice": {"tenant": "red", "scopes": ("batch",)},
    "live": {"tenant": "red", "scopes": ("serve",)},
}


class FakeRollouts:
    def __init__(self) -> None:
        settings = {"ladder": [0.01, 0.25, 1.0], "shadow": True, "alpha": 0.01}
        self.record = RolloutRecord(
            id="roll-1", deployment="m", configured="m:1", stable="m:1", candidate=f"m:2 {HOSTILE}",
            mode="canary", who="",
            settings=settings, stage="ladder", share=0.25, reason=HOSTILE, created_unix_s=1e9, updated_unix_s=1e9,
        )  # fmt: skip
        self.asked: list[tuple[str, ...]] = []

    def list(self, limit: int = 100, deployment: str | None = None) -> list[RolloutRecord]:
        return [self.record]

    def get(self, rollout: str) -> RolloutRecord:
        return self.record

    def events(self, rollout_id: str) -> Any:
        return [RolloutEvent(1e9, HOSTILE, (HOSTILE,))]

    def differences(self, rollout_id: str) -> None:
        return None

    def evidence(self, rollout_id: str) -> Any:
        return [EvidencePoint(1e9 + k, 0.01, {"failed": 0.1 * k, HOSTILE: 0.5}) for k in range(5)]

    def ask(self, rollout: str, what: str, who: str = "", why: str = "") -> RolloutRecord:
        self.asked.append((rollout, what, who, why))
        return self.record


@pytest.fixture
def desk() -> FakeRollouts:
    return FakeRollouts()


@pytest.fixture
def keyed(desk: FakeRollouts) -> Iterator[ConsoleApp]:
    with console_app(keys=KEYS) as (made, _):
        add_deployments(made.app, made.models, desk)  # type: ignore[arg-type]
        add_openai(made.app, made.service)
        add_scoring(made.app, made.service)
        yield made


def test_a_rollout_shows_its_ladder_its_evidence_and_its_decisions(keyed: ConsoleApp) -> None:
    keyed.login("dora")
    assert "roll-1" in keyed.page("/console/rollouts")
    page = keyed.page("/console/rollouts/roll-1")
    assert '<li class="past">1 %</li>' in page
    assert '<li class="now" aria-current="step">25 %</li>' in page
    assert '<li class="ahead">100 %</li>' in page
    assert "Evidence that the candidate is worse" in page
    assert "<img" not in page
    assert "<script>" not in page


def test_who_may_deploy_promotes_with_a_reason_and_nobody_else_does(keyed: ConsoleApp, desk: FakeRollouts) -> None:
    keyed.login("alice")
    assert "Promote" not in keyed.page("/console/rollouts/roll-1")
    assert keyed.send("/console/rollouts/roll-1/promote").status == 403
    keyed.login("dora", "&read_only=1")
    assert "Promote" not in keyed.page("/console/rollouts/roll-1")
    assert keyed.send("/console/rollouts/roll-1/promote").status == 403
    assert desk.asked == []
    keyed.login("dora")
    assert "Roll back" in keyed.page("/console/rollouts/roll-1")
    assert keyed.send("/console/rollouts/roll-1/promote", reason="looks good").status == 303
    assert desk.asked == [("roll-1", "promote", "dora", "looks good")]


def test_evidence_is_kept_of_the_last_hours_and_not_of_every_look() -> None:
    curve = EvidenceCurve()
    for tick in range(2000):
        curve.add(tick / 2, 0.01, [Comparison("failed", tick, 10, 0, 10, evidence=float(tick))])
    assert len(curve.points()) == 720
    curve.add(1000.0, 0.25, [])
    curve.add(1000.1, 0.25, [])
    assert [each.share for each in curve.points()[-2:]] == [0.01, 0.25]


def test_a_question_needs_the_right_to_ask(keyed: ConsoleApp) -> None:
    keyed.login("alice")
    refused = keyed.send("/console/ask", model="m", text='{"x": 2.0, "word": "a"}')
    assert refused.status == 403
    assert "scope serve" in refused.body.decode()

    keyed.login("live")
    assert 'option value="m" selected' in keyed.page("/console/ask")
