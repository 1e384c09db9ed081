from __future__ import annotations

import threading

import pytest

from twoshift.cli import progress


def test_what_goes_on_is_told_again_until_it_ends() -> None:
    told, thrice = list[str](), threading.Event()

    def tell(text: str) -> None:
        told.append(text)
        if len(told) == 3:
            thrice.set()

    with progress.Ongoing(tell, 0.001) as ongoing:
        ongoing("Loading m")
        assert thrice.wait(60)
    ended = list(told)
    assert told[0] == "Loading m"
    assert told[1].startswith("Loading m: ")
    assert ended == told


def test_without_a_terminal_the_same_share_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now_s = 0.0
    monkeypatch.setattr("twoshift.cli.progress.time.monotonic", lambda: now_s)
    with progress.progress_bar("Measuring") as report:
        for step in range(100):
            now_s = float(step)
            report(min(0.99, step / 20))
    assert capsys.readouterr().err.splitlines() == ["Measuring: 25%", "Measuring: 75%", "Measuring: 99%"]
