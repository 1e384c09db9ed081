"""What is seen of deployments: latencies, rates, shares, an hour in memory and a day in a store."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("jinja2", reason="the serve extra is not installed")
pytest.importorskip("httptools", reason="the serve extra is not installed")

from console_app import ConsoleApp, console_app

from twoshift.errors import TryLater
from twoshift.ui.feed import Feed, Sight
from twoshift.ui.latencies import LatencyCounts


class KeptDays:
    def __init__(self) -> None:
        self.minutes: list[Mapping[str, Mapping[str, Any]]] = []
        self.fails = False

    def add(self, minutes: Mapping[str, Mapping[str, Any]], at_unix_s: float, forget_before_unix_s: float) -> None:
        if self.fails:
            raise TryLater("the database does not answer", 1.0)
        assert forget_before_unix_s == pytest.approx(at_unix_s - 86_400)
        self.minutes.append(minutes)

    def since(self, deployment: str, unix_s: float) -> Sequence[Mapping[str, Any]]:
        assert unix_s == pytest.approx(time.time() - 86_400, abs=60)
        return [each[deployment] for each in self.minutes]


@pytest.fixture
def days() -> KeptDays:
    return KeptDays()


@pytest.fixture
def shown(days: KeptDays) -> Iterator[ConsoleApp]:
    with console_app(days) as (made, _):
        yield made


def test_quantiles_are_right_to_two_percent() -> None:
    drawn = random.Random(5)  # noqa: S311
    seconds = [drawn.lognormvariate(-4, 1) for _ in range(5000)]
    counted = LatencyCounts.over([LatencyCounts.of(seconds[:2000]), LatencyCounts(), LatencyCounts.of(seconds[2000:])])
    assert counted.requests == 5000
    for share in (0.5, 0.9, 0.99):
        assert counted.quantile_s(share) == pytest.approx(float(np.quantile(seconds, share)), rel=0.02)
    assert LatencyCounts.of([0.0, 1e9]).requests == 2
    assert LatencyCounts.over([]).quantile_s(0.5) is None


def test_figures_are_of_the_last_ticks_and_refusals_are_told_apart(shown: ConsoleApp) -> None:
    metrics = shown.models["m"].metrics
    for status, seconds, why in [(200, 0.010, None)] * 90 + [(504, 0.5, "late")] * 2 + [(503, 0.001, "overloaded")] * 8:
        metrics.replied(status, seconds, why)
    metrics.heard_recent([(time.monotonic(), 0.020)] * 100)
    shown.look()
    now = shown.console.sampler.watched["m"].now
    assert now.requests == 192
    assert (now.p50_s, now.p99_s) == (pytest.approx(0.02, rel=0.02), pytest.approx(0.5, rel=0.02))
    assert now.refused_per_s == pytest.approx(0.08 * now.requests_per_s)
    assert now.failed_per_s == pytest.approx(0.02 * now.requests_per_s)
    shown.look(6)
    assert shown.console.sampler.watched["m"].now.p50_s is None


def test_an_hour_is_kept_in_memory_and_no_more(shown: ConsoleApp) -> None:
    shown.look(5 * 365)
    history = msgspec.json.decode(shown.ask("GET", "/console/history/m").body)
    assert {name: len(each) for name, each in history.items()} == dict.fromkeys(history, 360)
    assert history["at"] == sorted(history["at"])


def test_a_day_of_minutes_is_kept_in_the_store_and_a_store_that_fails_stops_nothing(
    shown: ConsoleApp, days: KeptDays
) -> None:
    shown.look(29)
    assert len(days.minutes) == 1
    days.fails = True
    shown.look(30)
    days.fails = False
    shown.look(30)
    assert len(days.minutes) == 2
    history = msgspec.json.decode(shown.ask("GET", "/console/history/m?span=day").body)
    assert len(history["at"]) == 2


def test_what_requests_took_beside_a_job_is_told_apart() -> None:
    with console_app() as (made, _):
        model = made.models["m"]
        watched = made.console.sampler.watched["m"]
        model.metrics.replied(200, 0.010, None)
        made.look()
        model.backend.engine.submit_block(model.backend.engine.runtime.prepare([{"x": 1.0}] * 64)).result(20)  # type: ignore[attr-defined]
        model.metrics.replied(200, 0.030, None)
        made.look()
        cost = watched.job_cost()
        assert cost.alone == pytest.approx(0.010, rel=0.02)
        assert cost.beside == pytest.approx(0.030, rel=0.02)


def test_every_page_gets_each_event_and_who_may_see_less_gets_less(shown: ConsoleApp) -> None:
    async def heard() -> list[dict[str, Any]]:
        feed, told = Feed(), list[bytes]()
        sights = [Sight(True), Sight(False, ("m",)), Sight(False, ("other",))]
        pages = [feed.page("anna", each, lambda: True) for each in sights]

        async def read(page: Any) -> None:
            told.append(b"".join([piece async for piece in page]))
            await page.aclose()

        reading = [asyncio.ensure_future(read(each)) for each in pages]
        await asyncio.sleep(0)
        feed.publish(lambda sight: {name: sight.all for name in ("m",) if sight.sees(name)})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        feed.close()
        await asyncio.gather(*reading)
        return [msgspec.json.decode(each.partition(b"data: ")[2]) for each in told]

    assert sorted(map(str, asyncio.run(heard()))) == sorted(map(str, ({"m": True}, {"m": False}, {})))


def test_a_stream_ends_with_its_session_and_too_many_are_refused() -> None:
    async def tried() -> None:
        feed = Feed()
        page = feed.page("anna", Sight(True), lambda: False)
        pieces = aiter(page)
        assert await anext(pieces) == b"retry: 3000\n\n"
        rest = asyncio.ensure_future(anext(pieces, None))
        await asyncio.sleep(0)
        feed.publish(lambda _: {})
        assert await rest is None
        await page.aclose()
        await page.aclose()
        for _ in range(100):
            feed.page("anna", Sight(True), lambda: True)
        with pytest.raises(TryLater, match="too many pages"):
            feed.page("anna", Sight(True), lambda: True)
        feed.page("bert", Sight(True), lambda: True)  # whom anna does not keep out

    asyncio.run(tried())
