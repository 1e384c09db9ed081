from __future__ import annotations

import pytest

from twoshift.cli import progress


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
