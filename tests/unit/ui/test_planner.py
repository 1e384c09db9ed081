"""The planner's endpoint and page: bounded, escaped, and no more than a key may see."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="the serve extra is not installed")
pytest.importorskip("httptools", reason="the serve extra is not installed")

from console_app import HOSTILE, ConsoleApp, console_app

from twoshift.errors import InvalidInput
from twoshift.serve.http.planning import add_planning
from twoshift.serve.plan_settings import PlanSettings, plan_fields, read_plan
from twoshift.ui.plan_page import query_of

KEYS = {"alice": {"tenant": "red", "models": ("m",)}, "other": {"tenant": "blue", "models": ("elsewhere",)}}


@pytest.fixture(scope="module")
def free() -> Iterator[ConsoleApp]:
    with console_app() as (made, _):
        add_planning(made.app, made.models)
        yield made


def asked(app: ConsoleApp, **query: str) -> tuple[int, Any]:
    reply = app.ask("GET", f"/v1/plan?{urllib.parse.urlencode(query)}", accept="application/json")
    return reply.status, json.loads(reply.body)


def test_a_plan_has_every_side_and_says_what_was_asked(free: ConsoleApp) -> None:
    status, made = asked(free, batch="64", params="300M", device="l4", utilisation="50%", slo_ms="0.2s")
    assert status == 200
    assert (made["asked"]["params"], made["asked"]["utilisation"], made["asked"]["slo_ms"]) == (3e8, 0.5, 200.0)
    assert made["chosen"]["batch"] == 64
    assert made["measured"] is False
    assert {"sweep", "cap", "memory", "roofline", "tokens", "usd_per_million_tokens"} <= made.keys()


def test_a_served_model_lends_its_measured_curve(free: ConsoleApp) -> None:
    status, made = asked(free, profile="m")
    assert (status, made["measured"], made["curve"]) == (200, True, "measured by this server for m")
    assert '<option value="m">m</option>' in free.page("/console/plan")


def test_a_key_plans_with_the_models_that_it_may_use() -> None:
    with console_app(keys=KEYS) as (made, _):
        add_planning(made.app, made.models)
        assert asked(made)[0] == 401
        for name, status in (("alice", 200), ("other", 400)):
            assert made.ask("GET", "/v1/plan?profile=m", authorization=f"Bearer key-of-{name}").status == status
        made.login("other")
        assert ">m</option>" not in made.page("/console/plan")
        assert "no model is ready" in made.page("/console/plan/figures?profile=m")


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"batch": "0"}, "a whole number from 1 to 4,096"),
        ({"batch": "1e99"}, "a whole number from 1 to 4,096"),
        ({"params": "nan"}, "a number from"),
        ({"price": "-1"}, "a number of dollars above 0"),
        ({"padding": "1"}, "below 1"),
        ({"device": "H10"}, "H100"),
        ({"precison": "fp8"}, "a known parameter, such as precision"),
        ({"layers": "32"}, "layers, kv_heads and head_dim must be given together"),
        ({"overhead_ms": "6"}, "overhead_ms and item_ms must be given together"),
        ({"profile": "m", "overhead_ms": "6", "item_ms": "1"}, "cannot be used with overhead_ms and item_ms"),
        ({"batch": "1" * 300}, "at most 200 characters"),
        ({"profile": "nobody"}, "one of these models: m"),
    ],
)
def test_a_mistake_is_named_with_what_is_accepted(free: ConsoleApp, query: dict[str, str], told: str) -> None:
    status, made = asked(free, **query)
    assert status == 400
    assert told in made["error"]["message"]
    assert 'class="problem"' in free.page(f"/console/plan/figures?{urllib.parse.urlencode(query)}")


def test_a_parameter_is_given_once(free: ConsoleApp) -> None:
    reply = free.ask("GET", "/v1/plan?batch=1&batch=2")
    assert (reply.status, b"only once" in reply.body) == (400, True)


class Tags(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


@pytest.mark.parametrize("name", sorted(plan_fields()))
def test_hostile_values_are_shown_as_text(free: ConsoleApp, name: str) -> None:
    page = free.page(f"/console/plan?{urllib.parse.urlencode({name: HOSTILE, HOSTILE: name})}")
    tags = Tags()
    tags.feed(page)
    assert "img" not in {tag for tag, _ in tags.seen}
    scripts = [attributes for tag, attributes in tags.seen if tag == "script"]
    assert scripts
    assert all(str(each["src"]).startswith("/console/assets/") for each in scripts)
    assert not any(each.startswith("on") or each == "style" for _, attributes in tags.seen for each in attributes)


def test_a_link_holds_what_differs_from_the_defaults_and_is_read_as_the_same() -> None:
    asked = {"batch": "64", "params": "1.3B", "spot_discount": "60%", "layers": "24", "kv_heads": "8", "head_dim": "64"}
    settings = read_plan(asked)
    link = query_of(settings)
    assert link.keys() == asked.keys()
    assert read_plan(link) == settings
    assert query_of(PlanSettings()) == {}
    with pytest.raises(InvalidInput):
        read_plan({"nothing like it": "1"})
