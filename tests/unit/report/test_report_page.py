"""A page needs nothing but itself, and shows what it is given as text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

import twoshift.report as report
from twoshift.report import (
    Axis,
    Bar,
    Card,
    Mark,
    Sample,
    Section,
    Series,
    area_chart,
    bar_chart,
    figures_row,
    histogram,
    line_chart,
    page,
    table,
    text,
)

EVIL = "<script>alert('x')</script>&\"\x00"


class Balance(HTMLParser):
    """Fails on a tag that is closed out of turn."""

    VOID = ("meta", "link", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def whole(words: str) -> str:
    axis = Axis(words, words)
    one = Series(words, [1, 2], [3, 4])
    figures = (
        line_chart(words, [one, one], axis, axis, marks=[Mark(3, words), Mark(1, words, "x")], note=words),
        area_chart(words, [one, one], axis, axis, note=words),
    )
    blocks = [
        figures_row([Card(words, words, words, "good")]),
        figures,
        bar_chart(words, [Bar(words, 1, words)], axis),
        histogram(words, [Sample(words, [1, 2]), Sample(words, [2, 3])], axis, axis),
        table([words, "n"], [[words, 1]]),
        text([words]),
    ]
    return page(words, words, [Section(words, blocks, words)], words)


def test_whatever_users_supply_is_shown_and_not_obeyed() -> None:
    html = whole(EVIL)
    assert "<script" not in html
    assert "\x00" not in html
    assert "&lt;script&gt;" in html


def test_every_tag_is_closed_in_turn() -> None:
    for words in (EVIL, "plain", ""):
        balance = Balance()
        balance.feed(whole(words))
        assert balance.open == []


def test_nothing_is_fetched_and_nothing_runs() -> None:
    html = whole("plain")
    assert not re.search(r"https?:|//|url\(|@import|<script|<link|\ssrc=|\son\w+=", html)


def test_a_page_reads_on_a_phone_in_the_dark_and_on_paper() -> None:
    html = whole("plain")
    assert 'name="viewport"' in html
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html
    assert 'class="wide"' in html
    assert 'class="narrow"' in html


def test_the_same_values_give_the_same_page() -> None:
    assert whole("plain") == whole("plain")


@pytest.mark.parametrize(
    "cell", [3, 2.5, None, "$229.30", "99.9 %", "38.1 ms", "−4", "1.2M", "12 rows/s", "≈ 3 h", "—"]
)
def test_a_column_of_numbers_is_flush_right(cell: str | float | None) -> None:
    assert table(["n"], [[cell], [1]]).html.count('class="number"') == 3


@pytest.mark.parametrize("cell", ["twoshift", "2 fleets of five", True, "v1 or v2"])
def test_a_column_of_words_is_flush_left(cell: str | bool) -> None:
    assert 'class="number"' not in table(["n"], [[cell], [1]]).html


def test_cells_are_written_for_people() -> None:
    html = table(["a", "b", "c", "d"], [[1234567, 0.123456, None, False]]).html
    assert [*re.findall(r"<td[^>]*>([^<]*)", html)] == ["1,234,567", "0.123", "—", "no"]


def test_a_row_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 1 cells per row; this row has 2 cells"):
        table(["a"], [[1, 2]])


def test_an_empty_page_is_still_a_page() -> None:
    html = page("t", "", [Section("", [figures_row([]), table([], []), text("one paragraph")])])
    assert "<p>one paragraph</p>" in html
    assert "<footer>" not in html


def test_a_state_is_never_told_by_colour_alone() -> None:
    html = whole("plain")
    assert 'content: "✓ "' in html
    assert 'content: "▲ "' in html


def test_the_public_names_are_sorted_and_exist() -> None:
    assert sorted(report.__all__, key=lambda name: (name.islower(), name)) == report.__all__
    assert all(hasattr(report, name) for name in report.__all__)
