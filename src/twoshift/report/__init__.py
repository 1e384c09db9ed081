"""Self-contained HTML reports: charts, big numbers and tables as strings. Pure: no I/O, standard library only.

page(title, subtitle, [Section("A day", [figures_row(cards), line_chart(...), table(...)])], footer) -> html
"""

from __future__ import annotations

from twoshift.report.bars import bar_chart
from twoshift.report.formats import format_number, format_value
from twoshift.report.histograms import histogram
from twoshift.report.lines import area_chart, line_chart
from twoshift.report.page import figures_row, page, svg_file, table, text
from twoshift.report.scatter import scatter_chart
from twoshift.report.values import Axis, Bar, Bins, Block, Card, Dots, Figure, Mark, Sample, Section, Series, Tone

__all__ = [
    "Axis",
    "Bar",
    "Bins",
    "Block",
    "Card",
    "Dots",
    "Figure",
    "Mark",
    "Sample",
    "Section",
    "Series",
    "Tone",
    "area_chart",
    "bar_chart",
    "figures_row",
    "format_number",
    "format_value",
    "histogram",
    "line_chart",
    "page",
    "scatter_chart",
    "svg_file",
    "table",
    "text",
]
