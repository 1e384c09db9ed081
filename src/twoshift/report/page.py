"""Blocks of a page, and the page: one HTML file that needs nothing else to be read."""

from __future__ import annotations

import re
from collections.abc import Sequence

from twoshift.report.formats import format_number
from twoshift.report.style import CHART_CSS, PAGE_CSS, PALETTE_CSS
from twoshift.report.svg import element, escape
from twoshift.report.values import Block, Card, Figure, Section

__all__ = ["block_markup", "figure_block", "figures_row", "page", "svg_file", "table", "text"]

Cell = str | int | float | None

# a number as written by people: a sign, a currency, digits, a short unit
_NUMERIC = re.compile(r"[-+−~≈<>≤≥±]*\s*[$€£]?\s*\d[\d.,_]*(e[-+]?\d+)?\s*[^\d\s]{0,8}(/[a-z]{1,6})?")
_NOTHING = ("", "—", "-", "–")

# a sun going down behind the line where the night shift takes over
_BRAND = (
    '<svg viewBox="0 0 20 20" aria-hidden="true"><path d="M3 10a7 7 0 0 1 14 0z" fill="var(--orange)"/>'
    '<path d="M3 11.5h14a7 7 0 0 1-14 0z" fill="var(--blue)"/></svg>'
)

_SVG_NAMESPACE = "http://www.w3.org/2000/svg"


def figures_row(cards: Sequence[Card]) -> Block:
    """Big numbers beside each other: what a reader takes away."""
    return Block(f'<dl class="cards">{"".join(map(_card, cards))}</dl>' if cards else "")


def _card(card: Card) -> str:
    note = f'<dd class="note">{escape(card.note)}</dd>' if card.note else ""
    value = f'<dd class="figure">{escape(card.value)}</dd>'
    return f'<div class="card {card.state}"><dt>{escape(card.label)}</dt>{value}{note}</div>'


def table(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Block:
    """Columns that hold only numbers, units allowed, are set flush right; None is a dash."""
    for row in rows:
        if len(row) != len(headers):
            raise ValueError(f"expected {len(headers)} cells per row; this row has {len(row)} cells: {list(row)!r}")
    classes = [
        ' class="number"' if rows and all(_is_number(row[column]) for row in rows) else ""
        for column in range(len(headers))
    ]
    head = "".join(f'<th scope="col"{flush}>{escape(name)}</th>' for flush, name in zip(classes, headers, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{flush}>{_cell(cell)}</td>' for flush, cell in zip(classes, row, strict=True))}</tr>"
        for row in rows
    )
    rows_html = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return Block(f'<div class="card table" tabindex="0"><table>{rows_html}</table></div>')  # keys scroll a wide one


def _is_number(cell: Cell) -> bool:
    if isinstance(cell, str):
        return cell.strip() in _NOTHING or _NUMERIC.fullmatch(cell.strip()) is not None
    return not isinstance(cell, bool)


def _cell(cell: Cell) -> str:
    if cell is None:
        return "—"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, str):
        return escape(cell)
    return f"{cell:,}".replace("-", "−") if isinstance(cell, int) else format_number(float(cell))


def text(paragraphs: Sequence[str] | str) -> Block:
    """Plain paragraphs; markup in them is shown, not obeyed."""
    written = [paragraphs] if isinstance(paragraphs, str) else paragraphs
    return Block(f'<div class="prose">{"".join(f"<p>{escape(one)}</p>" for one in written)}</div>')


def page(title: str, subtitle: str, sections: Sequence[Section], footer: str = "") -> str:
    """The whole report as one HTML document: no scripts, nothing fetched."""
    below = f'<p class="subtitle">{escape(subtitle)}</p>' if subtitle else ""
    end = f"<footer><p>{escape(footer)}</p></footer>" if footer else ""
    body = "\n".join(map(_section, sections))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="twoshift">
<title>{escape(title)}</title>
<style>{PALETTE_CSS}{CHART_CSS}{PAGE_CSS}</style>
</head>
<body>
<header><p class="brand">{_BRAND}Twoshift</p><h1>{escape(title)}</h1>{below}</header>
<main>
{body}
</main>
{end}
</body>
</html>
"""


def _section(section: Section) -> str:
    heading = f"<h2>{escape(section.title)}</h2>" if section.title else ""
    intro = f'<p class="intro">{escape(section.intro)}</p>' if section.intro else ""
    return f"<section>{heading}{intro}{''.join(map(block_markup, section.blocks))}</section>"


def block_markup(block: Figure | Block | tuple[Figure, ...]) -> str:
    """What a section is made of."""
    if isinstance(block, Block):
        return block.html
    if isinstance(block, Figure):
        return figure_block(block)
    return f'<div class="pair">{"".join(map(figure_block, block))}</div>'


def figure_block(figure: Figure) -> str:
    """A chart in both widths, as markup."""
    note = f"<small>{escape(figure.note)}</small>" if figure.note else ""
    items = "".join(f'<li><i class="{tone}"></i>{escape(name)}</li>' for tone, name in figure.legend)
    legend = f'<ul class="legend">{items}</ul>' if items else ""
    drawn = f'<div class="wide">{figure.wide}</div><div class="narrow">{figure.narrow}</div>'
    return f'<figure class="card"><figcaption>{escape(figure.title)}{note}</figcaption>{legend}{drawn}</figure>'


def svg_file(figure: Figure) -> str:
    """The wide drawing as a file of its own, for a README: the styles travel inside."""
    style = element("style", PALETTE_CSS, CHART_CSS)
    opened = figure.wide.replace("<svg ", f'<svg xmlns="{_SVG_NAMESPACE}" ', 1)
    head, rest = opened.split(">", 1)
    return f"{head}>{style}{rest}\n"
