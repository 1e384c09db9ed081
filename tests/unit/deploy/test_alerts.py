"""The alert rules and the dashboard: taken by promtool, fired by series that must fire them, silent otherwise."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from debian import debian_program

yaml = pytest.importorskip("yaml")

from metric_names import ALERTS, DASHBOARD, expressions  # noqa: E402

CASES = Path(__file__).with_name("alerts.test.yaml")


@pytest.fixture(scope="module")
def promtool() -> str:
    """Of Debian's package prometheus."""
    return debian_program("promtool", "prometheus")


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_promtool_takes_the_rules(promtool: str) -> None:
    done = subprocess.run([promtool, "check", "rules", ALERTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_each_alert_fires_when_it_must_and_not_otherwise(promtool: str) -> None:
    done = subprocess.run([promtool, "test", "rules", CASES], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_case_that_fires_it_and_one_in_which_it_is_silent() -> None:
    alerts = {rule["alert"] for rule in rules() if "alert" in rule}
    cases = [
        case for test in yaml.safe_load(CASES.read_text(encoding="utf-8"))["tests"] for case in test["alert_rule_test"]
    ]
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == alerts
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == alerts


def test_each_alert_says_what_to_do() -> None:
    for rule in rules():
        if "alert" in rule:
            assert rule["labels"]["severity"] in ("page", "ticket")
            assert len(rule["annotations"]["description"]) > 40, rule["alert"]


def test_recorded_series_that_are_asked_for_are_recorded() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    assert set(re.findall(r"\btwoshift:[a-z_:0-9]+", " ".join(expressions([])))) == recorded


def test_panels_do_not_overlap_and_have_one_id_each() -> None:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for each in panels:
        at = each["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, each["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
