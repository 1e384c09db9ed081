"""Predictions as JSON and as a page: of whom they are, and shown as text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="the serve extra is not installed")
pytest.importorskip("httptools", reason="the serve extra is not installed")

from console_app import HOSTILE, ConsoleApp, console_app

from twoshift.prediction_ports import Prediction
from twoshift.serve.http.predictions import add_predictions

KEYS = {"root": {"scopes": ("admin",)}, "alice": {"tenant": "red", "models": ("m",)}}
KEPT = [
    Prediction("job", "m", HOSTILE, "s", 10.0, 12.0, 1e9, HOSTILE, "red", 8.0, 13.0),
    Prediction("job", "m", "eta", "s", 10.0, 40.0, 1e9, "job-2", "blue"),
    Prediction("scaling", "m", "load", "share", 0.5, 0.6, 1e9),
]


class Desk:
    def __init__(self, kept: list[Prediction] = KEPT) -> None:
        self.kept = kept

    def list(self, limit: int, kind: str | None = None, owner: str | None = None) -> list[Prediction]:
        found = [each for each in self.kept if kind in (None, each.kind) and owner in (None, each.owner)]
        return found[:limit]


@pytest.fixture
def keyed() -> Iterator[ConsoleApp]:
    with console_app(keys=KEYS) as (made, _):
        add_predictions(made.app, Desk())
        yield made


def asked(app: ConsoleApp, key: str, query: str = "") -> tuple[int, Any]:
    reply = app.ask("GET", f"/v1/predictions{query}", authorization=f"Bearer key-of-{key}")
    return reply.status, json.loads(reply.body)


def test_a_tenant_sees_its_own_jobs_and_an_admin_sees_all(keyed: ConsoleApp) -> None:
    status, all_of_it = asked(keyed, "root")
    assert (status, len(all_of_it["data"])) == (200, 3)
    assert {each["what"]: each["near_share"] for each in all_of_it["calibration"]} == {HOSTILE: 1, "eta": 0, "load": 1}
    assert [each["subject"] for each in asked(keyed, "alice")[1]["data"]] == [HOSTILE]
    assert [each["kind"] for each in asked(keyed, "root", "?kind=scaling")[1]["data"]] == ["scaling"]
    status, told = asked(keyed, "root", "?kind=weather")
    assert (status, "one of job, rollout, scaling" in told["error"]["message"]) == (400, True)
    assert asked(keyed, "root", "?limit=0")[0] == 400


def test_the_page_draws_every_prediction_and_obeys_none(keyed: ConsoleApp) -> None:
    keyed.login("root")
    page = keyed.page("/console/predictions")
    assert page.count("<circle") == 2 * len(KEPT)  # in two widths
    assert HOSTILE not in page
    assert "<img" not in page
    assert "100 %" in page
    keyed.cookie = ""
    keyed.login("alice")
    assert "job-2" not in keyed.page("/console/predictions")


def test_without_any_it_says_so() -> None:
    with console_app() as (made, _):
        add_predictions(made.app, Desk([]))
        assert "There are no measured predictions yet" in made.page("/console/predictions")
