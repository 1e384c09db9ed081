"""Pages from templates: what goes into them is escaped unless this package has made it."""

from __future__ import annotations

import functools
import hashlib
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from twoshift.durations import format_duration
from twoshift.report import Figure, format_number
from twoshift.report.page import figure_block
from twoshift.report.style import CHART_CSS, PALETTE_CSS

__all__ = ["ASSETS", "compile_pages", "render"]

_FOLDER = Path(__file__).parent
_NOTHING = "—"
_PAGES = [
    ("/", "Now"),
    ("/console/jobs", "Jobs"),
    ("/console/batches", "Batches"),
    ("/console/streams", "Streams"),
    ("/console/schedules", "Schedules"),
    ("/console/rollouts", "Rollouts"),
    ("/console/ask", "Ask"),
    ("/console/plan", "Plan"),
    ("/console/predictions", "Predictions"),
]


def seconds(value: float | None) -> str:
    """A latency, as short as it can be read."""
    if value is None:
        return _NOTHING
    return f"{format_number(value)} s" if value >= 1 else f"{format_number(1e3 * value)} ms"


def percent(value: float | None) -> str:
    if value is None:
        return _NOTHING
    return f"{100 * value:.0f} %" if value >= 0.0995 or value < 0.0005 else f"{100 * value:.1f} %"


def number(value: float | None) -> str:
    return _NOTHING if value is None else format_number(value)


def duration(value: float | None) -> str:
    return _NOTHING if value is None else format_duration(value)


def dollars(value: float | None) -> str:
    """In cents; two digits of what is less than one."""
    if value is None:
        return _NOTHING
    return f"${value:,.2f}" if value >= 0.01 or not value else f"${Decimal(f'{value:.2g}'):f}"


def figure(value: float, unit: str) -> str:
    """Of a prediction: a time or a share."""
    return percent(value) if unit == "share" else seconds(value) if value < 100 else duration(value)


def moment(unix_s: float | None) -> Markup:
    """UTC, which a script puts into the reader's own time."""
    if unix_s is None:
        return Markup("{}").format(_NOTHING)
    told = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(unix_s))
    return Markup('<time datetime="{}Z">{} UTC</time>').format(told.replace(" ", "T"), told)


def chart(figure: Figure) -> Markup:
    """A figure of `report`, which escapes what it is given."""
    return Markup(figure_block(figure))  # noqa: S704


def _assets() -> dict[str, tuple[bytes, bytes]]:
    """By name: the content type, and the bytes."""
    css = "".join((PALETTE_CSS, CHART_CSS, *((_FOLDER / "assets" / each).read_text() for each in _SHEETS)))
    scripts = {name: (_FOLDER / "assets" / name).read_bytes() for name in ("uplot.js", "console.js", "plan.js")}
    made = {name: (b"text/javascript; charset=utf-8", body) for name, body in scripts.items()}
    return {**made, "console.css": (b"text/css; charset=utf-8", css.encode())}


_SHEETS = ("uplot.css", "console.css", "plan.css")
ASSETS = _assets()


@functools.cache
def _address(name: str) -> str:
    """With what tells a new release's apart from the one that a browser has kept."""
    return f"/console/assets/{name}?{hashlib.sha256(ASSETS[name][1]).hexdigest()[:12]}"


@functools.cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "seconds": seconds,
        "percent": percent,
        "number": number,
        "duration": duration,
        "dollars": dollars,
        "figure": figure,
        "moment": moment,
        "chart": chart,
    }
    made.globals |= {"asset": _address, "pages": _PAGES}
    return made


def render(template: str, **given: Any) -> bytes:
    """A page."""
    return _environment().get_template(template).render(**given).encode()


def compile_pages() -> None:
    """Before anybody asks: each takes milliseconds, which requests would wait for."""
    for name in _environment().list_templates():
        _environment().get_template(name)
