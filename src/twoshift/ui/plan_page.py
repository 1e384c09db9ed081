"""The planner as a form and what follows from it: works as a plain form, and a script renews the figures."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from twoshift.errors import InvalidInput
from twoshift.policy.plan.overview import LARGEST_BATCH
from twoshift.report.page import block_markup
from twoshift.report.svg import escape
from twoshift.serve.measured_curves import MeasuredCurves
from twoshift.serve.plan_settings import PlanSettings, plan_fields, read_plan, written
from twoshift.serve.planning import make_plan
from twoshift.ui.plan_figures import plan_blocks

__all__ = ["PlanPaths", "figures_markup", "form_markup", "page_markup", "query_of"]


class PlanPaths(NamedTuple):
    """Where the page, its figures and the same as JSON are found."""

    page: str
    figures: str
    data: str


class _Slider(NamedTuple):
    """How far a slider reaches; `log`: equal steps multiply."""

    lo: float
    hi: float
    is_log: bool = False


_SLIDERS = {
    "batch": _Slider(1, LARGEST_BATCH, True),
    "row_tokens": _Slider(1, 8192, True),
    "padding": _Slider(0, 0.9),
    "slo_ms": _Slider(1, 10_000, True),
    "share": _Slider(0.05, 1),
    "price": _Slider(0.05, 50, True),
    "utilisation": _Slider(0.05, 1),
    "spot_discount": _Slider(0, 0.9),
    "params": _Slider(1e7, 1e12, True),
    "tokens": _Slider(128, 131_072, True),
}
_GROUPS = (
    ("Work", ("batch", "row_tokens", "padding", "slo_ms", "share")),
    ("Money", ("price", "utilisation", "spot_discount")),
    ("Model and device", ("device", "params", "precision")),
    ("Curve and KV cache", ("profile", "overhead_ms", "item_ms", "layers", "kv_heads", "head_dim", "tokens")),
)
_LABELS = {
    "batch": "Batch", "row_tokens": "Tokens per row", "padding": "Padding", "slo_ms": "Objective, ms",
    "share": "SLO share for waiting", "price": "Price, $/h", "utilisation": "Utilisation",
    "spot_discount": "Spot discount", "device": "Device", "params": "Model size", "precision": "Precision",
    "profile": "Measured curve", "overhead_ms": "Fixed time per call, ms", "item_ms": "Time per row, ms",
    "layers": "Layers", "kv_heads": "KV heads", "head_dim": "Head size", "tokens": "Tokens per sequence",
}  # fmt: skip


def page_markup(given: Mapping[str, str], curves: MeasuredCurves, paths: PlanPaths) -> str:
    """The form and the figures for what a query says; a mistake is shown with what to change."""
    made = figures_markup(given, curves)
    live = '<div id="plan-figures" class="plan-figures" aria-live="polite">'
    return f'<div class="plan">{form_markup(given, curves, paths)}{live}{made}</div></div>'


def figures_markup(given: Mapping[str, str], curves: MeasuredCurves) -> str:
    """What follows, or why nothing does."""
    try:
        plan = make_plan(read_plan(given), curves)
    except InvalidInput as error:
        return f'<p class="problem" role="alert">{escape(str(error))}</p>'
    link = urllib.parse.urlencode(query_of(plan.settings))
    return f'<div data-query="{escape(link)}">{"".join(block_markup(each) for each in plan_blocks(plan))}</div>'


def query_of(settings: PlanSettings) -> dict[str, str]:
    """What differs from the defaults: a link to the same page."""
    values = {name: (getattr(settings, name), field.default) for name, field in plan_fields().items()}
    return {name: written(value) for name, (value, default) in values.items() if value != default}


def form_markup(given: Mapping[str, str], curves: MeasuredCurves, paths: PlanPaths) -> str:
    """Named inputs that a browser sends by itself; sliders are added by the script."""
    groups = "".join(_group(title, names, given, curves.names()) for title, names in _GROUPS)
    told = f'data-figures="{escape(paths.figures)}"'
    more = f'<p class="quiet">As JSON: <a id="plan-json" href="{escape(paths.data)}">{escape(paths.data)}</a></p>'
    return (
        f'<form id="plan-form" class="card plan-form" method="get" action="{escape(paths.page)}" {told}>{groups}'
        f'<p class="plan-buttons"><button type="submit">Compute</button> '
        f'<a href="{escape(paths.page)}">Reset</a></p>{more}</form>'
    )


def _group(title: str, names: Sequence[str], given: Mapping[str, str], curves: Sequence[str]) -> str:
    fields = "".join(_field(name, given, curves) for name in names)
    if title.startswith("Curve"):  # few need it
        opened = " open" if any(given.get(name) for name in names) else ""
        return f"<details{opened}><summary>{escape(title)}</summary>{fields}</details>"
    return f"<fieldset><legend>{escape(title)}</legend>{fields}</fieldset>"


def _field(name: str, given: Mapping[str, str], curves: Sequence[str]) -> str:
    field = plan_fields()[name]
    value = given.get(name) or written(field.default)
    about, label = escape(field.setting.about), escape(_LABELS[name])
    options = field.setting.value.options
    if name == "profile" and (curves or value):
        shown = ["", *curves, *([value] if value and value not in curves else [])]
        control = _select(name, value, {each: each or "data sheet" for each in shown})
    elif options:
        control = _select(name, value.lower(), {each.lower(): each for each in options})
    else:
        control = f'<input id="plan-{name}" name="{name}" value="{escape(value)}" {_range(name)}autocomplete="off">'
    return f'<p class="plan-field" title="{about}"><label for="plan-{name}">{label}</label>{control}</p>'


def _select(name: str, value: str, options: Mapping[str, str]) -> str:
    made = "".join(
        f'<option value="{escape(each)}"{" selected" if each == value else ""}>{escape(shown)}</option>'
        for each, shown in options.items()
    )
    return f'<select id="plan-{name}" name="{name}">{made}</select>'


def _range(name: str) -> str:
    slider = _SLIDERS.get(name)
    if slider is None:
        return ""
    whole = " data-whole" if plan_fields()[name].type is int or slider.hi >= 1000 else ""
    log = " data-log" if slider.is_log else ""
    return f'data-lo="{slider.lo:g}" data-hi="{slider.hi:g}"{log}{whole} inputmode="decimal" '
