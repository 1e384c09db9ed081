"""`plan goal`, and times as people write them."""

from __future__ import annotations

import datetime

import pytest

from twoshift.cli import main
from twoshift.cli.plan.goals import until
from twoshift.errors import InvalidInput

NOW = datetime.datetime(2027, 1, 13, 10, 0, tzinfo=datetime.UTC)  # a Wednesday
GOAL = ["plan", "goal", "--items", "40M", "--price", "0.8"]


@pytest.mark.parametrize(
    ("by", "hours"),
    [
        ("12:00", 2),
        ("8:00", 22),
        ("today 11:30", 1.5),
        ("tomorrow 8:00", 22),
        ("Fri 10:00", 48),
        ("wed 09:00", 7 * 24 - 1),
        ("thursday 10:00", 24),
        ("2027-01-14T10:00", 24),
        ("2027-01-14T10:00+01:00", 23),
    ],
)
def test_the_next_such_time_is_meant(by: str, hours: float) -> None:
    assert until(by, NOW) == hours * 3600


@pytest.mark.parametrize("by", ["", "soon", "25:00", "10:99", "today 9:00", "2020-01-01T00:00"])
def test_other_times_are_refused(by: str) -> None:
    with pytest.raises(InvalidInput, match="by"):
        until(by, NOW)


def test_an_estimate_is_called_one(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--window", "8h", "--live-rate", "30", "--p99-ms", "80", "--device", "L4", "--model", "minilm"]
    assert main([*GOAL, *asked]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "ESTIMATED, not measured" in told
    assert "One fleet of 2 instead of 3 devices saves $0.58" in told  # the batch fleet is given back when it is done


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--by is missing; expected --by or --window"),
        (["--window", "8h", "--by", "8:00"], "--by: '8:00' cannot be used with --window"),
        (["--window", "8h", "--model", "minilm"], "a device for minilm"),
        (["--window", "8h", "--model", "gpt", "--device", "L4"], "minilm, bge-small"),
        (["--window", "8h", "--model", "minilm", "--device", "L4", "--profile", "x"], "either --model"),
    ],
)
def test_what_does_not_go_together_is_refused(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*GOAL, *options]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_it_says_why_one_fleet_costs_more(capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str) -> str:
        assert main(["plan", "goal", "--window", "8h", "--price", "0.2", *words]) == 0
        return " ".join(capsys.readouterr().out.split())

    live = ("--items", "4M", "--live-rate", "30", "--p99-ms", "300", "--overhead-ms", "6", "--item-ms", "6")
    assert "more, because all its devices are rented until the deadline" in said(*live)
    short = ("--items", "4000M", "--live-rate", "30", "--p99-ms", "13", "--overhead-ms", "6", "--item-ms", "0.01")
    assert "more, because short calls lose more throughput" in said(*short)
