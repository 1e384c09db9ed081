"""Every chart is well-formed whatever it is given, stays inside its picture and says what it shows."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from twoshift.report import (
    Axis,
    Bar,
    Bins,
    Figure,
    Mark,
    Sample,
    Series,
    area_chart,
    bar_chart,
    histogram,
    line_chart,
    svg_file,
)
from twoshift.report.histograms import bin_samples

HOURS = Axis("hour of day", kind="hours")
MS = Axis("p99", kind="ms")
DAY = [hour / 4 for hour in range(97)]


def parsed(figure: Figure) -> list[ElementTree.Element]:
    """Both drawings, checked: XML, no number that a browser cannot read, nothing fetched."""
    drawings = [ElementTree.fromstring(drawing) for drawing in (figure.wide, figure.narrow)]  # noqa: S314 our own text
    for node in (node for drawing in drawings for node in drawing.iter()):
        places = [value for name, value in node.items() if name not in ("aria-label", "class", "role")]
        assert not any("nan" in value or "inf" in value or "http" in value for value in places)
    return drawings


def texts(figure: Figure) -> list[str]:
    return ["".join(node.itertext()) for node in parsed(figure)[0].iter("text")]


def titles(figure: Figure) -> list[str]:
    return [node.text or "" for node in parsed(figure)[0].iter("title")]


def wave(scale: float) -> list[float]:
    return [scale * (2 + math.sin(x / 4)) for x in DAY]


def test_a_line_chart_names_its_lines_at_their_ends_and_its_marks_in_place() -> None:
    figure = line_chart(
        "Latency", [Series("p99", DAY, wave(10)), Series("p50", DAY, wave(4))], HOURS, MS, marks=[Mark(50, "SLO 50 ms")]
    )
    assert {"p99", "p50", "SLO 50 ms", "00:00", "24:00", "p99 (ms)", "hour of day"} <= set(texts(figure))
    assert [name for _, name in figure.legend] == ["p99", "p50"]
    assert any(title.startswith("12:00\np99: ") for title in titles(figure))


def test_a_single_line_needs_no_legend() -> None:
    assert line_chart("Load", [Series("load", DAY, wave(1))], HOURS, Axis("rows")).legend == ()


def test_an_area_chart_tells_each_band_and_the_total() -> None:
    bands = [Series("live", DAY, wave(1)), Series("idle", DAY, wave(2), tone="muted", step=True)]
    figure = area_chart("Device-hours", bands, HOURS, Axis("devices"))
    assert {"live", "idle"} <= set(texts(figure))
    assert any("total: 6" in title for title in titles(figure))
    assert figure.legend == (("blue", "live"), ("muted", "idle"))


def test_a_bar_chart_writes_values_and_notes_beside_its_bars() -> None:
    figure = bar_chart("Dollars", [Bar("one fleet", 229.3, "−37 %"), Bar("two fleets", 361.2)], Axis(kind="usd"))
    assert {"one fleet", "$229.30−37 %", "$361.20"} <= set(texts(figure))


def test_bars_may_go_either_way_from_zero() -> None:
    wide, _ = parsed(bar_chart("Change", [Bar("up", 3.0), Bar("down", -1.0)], Axis()))
    up, down = wide.iter("rect")
    assert float(up.get("x", "")) == pytest.approx(float(down.get("x", "")) + float(down.get("width", "")), abs=0.2)


def test_a_histogram_counts_every_value_once() -> None:
    values = [math.sin(x) * 100 for x in range(1000)]
    (bins,) = bin_samples([Sample("a", values)], Axis())
    assert sum(bins.counts) == len(values)
    assert bins.edges[0] <= min(values)
    assert bins.edges[-1] >= max(values)


def test_samples_of_one_histogram_share_their_bins() -> None:
    first, second = bin_samples([Sample("a", [1.0, 2.0]), Sample("b", [50.0])], Axis())
    assert first.edges == second.edges


def test_a_histogram_takes_counts_as_they_are() -> None:
    figure = histogram("Sizes", [Bins("sizes", [0, 1, 2], [3, 4])], Axis("size"), marks=[Mark(1.5, "cap", "x")])
    assert {"0 to 1: 3", "1 to 2: 4", "cap"} <= set(titles(figure))


def test_counts_without_their_edges_are_refused() -> None:
    with pytest.raises(ValueError, match="2 edges for 2 counts"):
        histogram("Sizes", [Bins("sizes", [0, 1], [3, 4])], Axis())


def test_two_histograms_lie_over_each_other_with_their_names() -> None:
    data = [Sample("with", [1.0, 2, 2, 3]), Sample("without", [2.0, 3, 3, 9])]
    figure = histogram("Finish", data, Axis("t", kind="seconds"), Axis("runs"), marks=[Mark(3, "window", "x")])
    assert {"with", "without", "window", "runs", "t (s)"} <= set(texts(figure))


@pytest.mark.parametrize("ys", [[], [5.0], [5.0, 5.0, 5.0], [0.0, 0.0], [math.nan, math.inf], [1e-300, 1e299, -1e299]])
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_awkward_data_never_breaks_a_chart(ys: list[float], scale) -> None:
    xs = list(range(len(ys)))
    x, y = Axis("x", scale=scale), Axis("y", scale=scale)
    series = [Series("a", xs, ys), Series("b", xs, ys)]
    for figure in (
        line_chart("t", series, x, y, marks=[Mark(math.nan, "m"), Mark(0, "z", "x")]),
        area_chart("t", series, x, y),
        bar_chart("t", [Bar("a", value) for value in ys], y),
        histogram("t", [Sample("a", ys)], x),
        histogram("t", [Sample("a", ys), Sample("b", ys)], x, y),
    ):
        parsed(figure)


@settings(max_examples=examples(25))
@given(
    st.lists(st.tuples(st.floats(), st.floats()), max_size=12),
    st.sampled_from(["linear", "log"]),
    st.sampled_from(["number", "hours", "ms", "seconds", "usd", "share"]),
    st.text(max_size=8),
)
def test_any_points_and_any_names_give_well_formed_pictures(points, scale, kind, name: str) -> None:
    axis = Axis(name, name, scale, kind)
    series = [Series(name, [x for x, _ in points], [y for _, y in points]), Series("b", [1.0], [2.0])]
    marks = [Mark(y, name) for _, y in points[:2]] + [Mark(x, name, "x") for x, _ in points[:2]]
    parsed(line_chart(name, series, axis, axis, marks=marks))
    parsed(area_chart(name, series, axis, axis, marks=marks))
    parsed(histogram(name, [Sample(name, [x for x, _ in points])], axis, axis, marks=marks))
    parsed(bar_chart(name, [Bar(name, y, name) for _, y in points], axis))


def test_everything_drawn_stays_inside_the_picture() -> None:
    figure = line_chart(
        "Spikes", [Series("a", DAY, [(-1) ** i * 1e6 * i for i in range(97)])], HOURS, Axis("y", lo=-1e6, hi=1e6)
    )
    for drawing, width in zip(parsed(figure), (860, 400), strict=True):
        for path in drawing.iter("path"):
            numbers = [float(text) for text in re.findall(r"-?\d+(?:\.\d+)?", path.get("d", ""))]
            assert all(0 <= value <= width for value in numbers)


def test_names_at_the_line_ends_do_not_overlap() -> None:
    series = [Series(f"line {i}", [0, 1], [i, 5 + i / 1000]) for i in range(6)]
    wide, _ = parsed(line_chart("Close", series, Axis(), Axis()))
    heights = sorted(float(node.get("y", "")) for node in wide.iter("text") if node.get("class") == "name")
    assert all(after - before >= 14.9 for before, after in pairwise(heights))
    assert heights[-1] < 300


def test_a_large_series_makes_a_small_picture() -> None:
    size = 100_000
    figure = line_chart("Large", [Series("a", range(size), [math.sin(i) for i in range(size)])], Axis(), Axis())
    assert len(figure.wide) < 100_000


def test_a_chart_can_stand_in_a_file_of_its_own() -> None:
    written = svg_file(line_chart("Load", [Series("load", DAY, wave(1))], HOURS, Axis("rows")))
    root = ElementTree.fromstring(written)  # noqa: S314 our own text
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert written.count("http") == 1
