"""Tables on a narrow terminal, and in a pipe."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from twoshift.cli.jobs import _COLUMNS, _LESS
from twoshift.cli.output import show, table
from twoshift.cli.usage import usage_table

_USAGE = ["<<day", "<tenant", "<lane", "<model", "rows", "tokens", "device s", "harvested s", "dollars"]
_ROW = ["2026-11-16", "acme-research", "online", "minilm", "12,345,678", "1,234,567,890", "12,345.6", "0.0", "123.4567"]
_DAYS = ("2026-11-15", "2026-11-16")
_CELLS = st.text("ab -", max_size=30)


def _drawn(made: object, width: int) -> str:
    screen = io.StringIO()
    Console(file=screen, width=width, markup=False, highlight=False).print(made)
    return screen.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_no_number_name_or_day_is_cut_however_narrow_the_terminal_is(width: int) -> None:
    shown = _drawn(table(_USAGE, [_ROW, _ROW]), width)
    assert all(shown.count(cell) >= 2 for cell in _ROW)
    assert all(len(line) <= width for line in shown.splitlines())


def test_a_table_that_fits_stands_side_by_side_and_one_that_does_not_row_by_row() -> None:
    wide, narrow = _drawn(table(_USAGE, [_ROW]), 120), _drawn(table(_USAGE, [_ROW]), 60)
    assert len([line for line in wide.splitlines() if "acme-research" in line and "123.4567" in line]) == 1
    assert "  tenant       acme-research" in narrow
    assert "  harvested s  0.0" in narrow


def test_texts_are_wrapped_at_spaces_before_rows_are_stacked() -> None:
    shown = _drawn(table(["<<job", "<why"], [["job-0123456789ab", "it waits for the other server to end"]]), 40)
    assert "job-0123456789ab" in shown
    assert "server" in shown
    assert not any(line.startswith("  why") for line in shown.splitlines())


@given(st.lists(st.tuples(_CELLS, _CELLS, _CELLS), max_size=3), st.integers(20, 120))
def test_every_word_of_every_cell_is_shown_whole(rows: list[tuple[str, str, str]], width: int) -> None:
    words = [word for row in rows for cell in row for word in cell.split() if len(word) < width - 12]
    shown = _drawn(table(["<one", "<<two", "three"], rows), width)
    assert all(word in shown for word in words)


def test_in_a_pipe_a_row_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    show(False, {}, table(_USAGE, [_ROW]))
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "acme-research" in line)
    assert line.split() == _ROW


def test_usage_says_once_what_all_its_rows_share() -> None:
    counts = {"rows": 12_345_678, "tokens": 1_234_567_890, "device_s": 12_345.6, "harvested_s": 0.0, "usd": 123.4567}
    used = [{"day": day, "tenant": "acme-research", "lane": "online", "model": "minilm", **counts} for day in _DAYS]
    shown = _drawn(usage_table(["day", "tenant", "lane", "model"], used), 80)
    assert "tenant acme-research, lane online, model minilm" in shown
    assert shown.count("acme-research") == 1
    for day in _DAYS:
        (line,) = (line for line in shown.splitlines() if day in line)
        assert line.split() == [day, "12,345,678", "1,234,567,890", "12,345.6", "0.0", "123.4567"]


def test_usage_of_language_models_has_prices_of_what_is_read_and_generated() -> None:
    counts = {"rows": 1, "tokens": 30, "device_s": 1.0, "harvested_s": 0.0, "usd": 2.0}
    prices = {"output_tokens": 10, "usd_per_million_input_tokens": 1.5, "usd_per_million_output_tokens": None}
    shown = _drawn(usage_table(["day"], [{"day": "2026-01-01", **counts, **prices}]), 120)
    assert "$/M input" in shown
    (line,) = (line for line in shown.splitlines() if "2026-01-01" in line)
    assert line.split()[-3:] == ["2.0000", "1.5000", "-"]


def test_twenty_jobs_are_twenty_lines_however_long_an_id_is() -> None:
    jobs = [["job-0123456789ab", "running", "45%", "12,345/30,000", "0", "3 min", "minilm"]] * 19
    jobs.append([f"batch_{'0' * 32}", "cancelled", "100%", "30,000/30,000", "29,969", "", "minilm"])
    shown = _drawn(table(_COLUMNS, jobs, less=_LESS), 80)
    assert len([line for line in shown.splitlines() if "minilm" in line]) == 20
    assert f"batch_{'0' * 32}" in shown
    assert "Columns not shown: time left, rows. Use --json or a wider terminal to see them." in shown
    assert "Left out" not in _drawn(table(_COLUMNS, jobs, less=_LESS), 120)
