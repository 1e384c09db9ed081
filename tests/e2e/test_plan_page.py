"""The planner in a real browser: with and without scripts, from a link, with hostile input."""

from __future__ import annotations

import re
import signal
import subprocess
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import PROGRAM, environment

HOSTILE = "<img src=x onerror=document.title='owned'>\"'"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home: Path = tmp_path_factory.mktemp("plan")
    words = [PROGRAM, "plan", "ui", "--no-browser"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment(home)) as program:
        assert program.stderr is not None
        told = program.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/", told)
        try:
            assert found is not None, told + program.stderr.read()
            yield found[0]
        finally:
            program.send_signal(signal.SIGINT)
            assert "Stopped" in program.stderr.read()
            assert program.wait() == 0


def opened(browser: Any, **options: Any) -> tuple[Any, list[str]]:
    """A page, and what it complains of: a script or a style that the policy refuses is an error there."""
    page, said = browser.new_context(**options).new_page(), list[str]()
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    return page, said


def card(page: Any, label: str) -> str:
    return page.locator(".cards .card", has_text=label).locator(".figure").first.inner_text()


@pytest.mark.slow
def test_a_slider_changes_the_figures_and_the_link_holds_the_state(browser: Any, address: str) -> None:
    page, said = opened(browser)
    page.goto(f"{address}?device=l4&params=300M")
    assert card(page, "call of 16") != ""
    before = card(page, "per million rows")
    slider = page.get_by_label("Batch, as a slider")
    slider.focus()
    slider.press("Home")
    page.wait_for_url(re.compile(r"[?&]batch=1(&|$)"))  # a function would be evaluated, which the policy refuses
    assert card(page, "per million rows") != before
    assert page.get_by_label("Batch", exact=True).input_value() == "1"
    state = page.url
    other, _ = opened(browser)
    other.goto(state)
    assert card(other, "per million rows") == card(page, "per million rows")
    assert other.get_by_label("Device", exact=True).input_value() == "l4"
    assert other.locator("svg.chart").count() == 8  # four, each in two widths
    assert said == []


@pytest.mark.slow
def test_it_is_a_plain_form_without_scripts(browser: Any, address: str) -> None:
    page, _ = opened(browser, java_script_enabled=False)
    page.goto(address)
    page.get_by_label("Batch", exact=True).fill("64")
    page.get_by_label("Precision").select_option("fp8")
    page.get_by_role("button", name="Compute").click()
    given = urllib.parse.parse_qs(urllib.parse.urlsplit(page.url).query)
    assert (given["batch"], given["precision"]) == (["64"], ["fp8"])
    assert card(page, "call of 64") != ""


@pytest.mark.slow
def test_what_is_wrong_is_said_and_shown_as_text(browser: Any, address: str) -> None:
    page, said = opened(browser, viewport={"width": 390, "height": 844}, color_scheme="dark")
    page.goto(f"{address}?{urllib.parse.urlencode({'batch': HOSTILE, 'profile': HOSTILE})}")
    problem = page.locator(".problem").inner_text()
    assert "batch" in problem
    assert "a whole number from 1 to 4,096" in problem
    assert page.title() == "Plan · Twoshift"
    assert page.locator("img").count() == 0
    page.get_by_label("Batch", exact=True).fill("8")
    page.get_by_label("Measured curve").select_option("")
    page.locator(".cards").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert said == []
