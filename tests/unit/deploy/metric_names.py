"""Which metrics are asked for by what is deployed, and which the program has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

__all__ = [
    "ALERTS", "DASHBOARD", "asked_metrics", "exported_metrics", "expressions", "llm_metric_names", "stream_metrics",
]  # fmt: skip

_FILES = Path(__file__).resolve().parents[3] / "deploy/helm/twoshift/files"
ALERTS, DASHBOARD = _FILES / "alerts.yaml", _FILES / "dashboard.json"
_OF_PROMETHEUS = {"namespace", "job", "service", "le"}  # labels that no server sets
_ENDINGS = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


def expressions(manifests: list[Any]) -> list[str]:
    """In PromQL: of these manifests, of the dashboard and of the alert rules."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    rules = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
    text = json.dumps([manifests, dashboard, rules]).replace("\\n", " ")
    return re.findall(r'"(?:query|expr)": "(.+?)(?<!\\)"', text)


def asked_metrics(expressions: list[str]) -> dict[str, set[str]]:
    """Their metrics, each with the labels that it is selected by."""
    found: dict[str, set[str]] = {}
    for name, selector in re.findall(r"\b(twoshift_[a-z_]+)(?:{(.*?)})?", " ".join(expressions)):
        labels = set(re.findall(r"(\w+)\s*(?:=~|!=|=)", selector))
        found.setdefault(name, set()).update(labels - _OF_PROMETHEUS)
    return found


def exported_metrics(page: str) -> dict[str, set[str]]:
    """The samples of a page in Prometheus' format, with their labels; a family without samples has none."""
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(page):
        found |= {f"{family.name}{each}": set() for each in _ENDINGS[family.type]}
        for sample in family.samples:
            found[sample.name] = {*sample.labels}
    return found


def llm_metric_names() -> dict[str, set[str]]:
    """Of language models, which a small server has none of."""
    from twoshift.serve.llm import exposition

    families = [(kind, name, {"model", "lane"}) for kind, name, *_ in exposition._LANED]
    families += [(kind, name, {"model"}) for kind, name, *_ in exposition._WHOLE]
    families += [("histogram", name, {"model", "lane"}) for name, *_ in exposition._HISTOGRAMS]
    return {f"twoshift_{name}{end}": labels for kind, name, labels in families for end in _ENDINGS[kind]}


def stream_metrics() -> dict[str, set[str]]:
    """Of streams, which a small server has none of."""
    from twoshift.streams.metrics import stream_metrics as families

    found = families({}, ("stream", "model"))
    return {f"twoshift_{name}{end}": {*labels} for kind, name, _, labels, _ in found for end in _ENDINGS[kind]}
