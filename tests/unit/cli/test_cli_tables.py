"""Tables on a narrow terminal."""

from __future__ import annotations

import io

from rich.console import Console

from twoshift.cli.output import table


def test_ids_and_days_are_never_cut_however_narrow_the_terminal_is() -> None:
    day, job = "2026-01-31", "job-0123456789ab"
    made = table(["<<day", "<<job", "<model", "rows"], [[day, job, "a model with a long name", "1,234,567"]])
    screen = io.StringIO()
    Console(file=screen, width=40).print(made)
    assert day in screen.getvalue()
    assert job in screen.getvalue()
    assert "a model with a long name" not in screen.getvalue()
