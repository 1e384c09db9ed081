"""The console in a real browser, over a real server with front processes, keys and two tenants."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from servers import Server
from user_models import written

from twoshift.serve.keys import digest_of

pytest.importorskip("sqlalchemy")
pytest.importorskip("jinja2")
pytestmark = pytest.mark.slow
HOSTILE = "<img src=x onerror=document.title=1>"
KEYS = {"root": ("house", "admin"), "alice": ("red", "batch"), "bob": ("blue", "batch"), "rita": ("red", "read")}
PAGES = ("", "jobs", "jobs/new", "batches", "streams", "schedules", "rollouts", "ask", "plan", "predictions")


@dataclass
class House:
    server: Server
    data: Path

    def path(self, name: str) -> str:
        return f"{self.server.address}/console/{name}" if name else f"{self.server.address}/"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    pytest.importorskip("httptools")
    made = tmp_path_factory.mktemp("console")
    written(made)
    (made / "data").mkdir()
    texts = [None if place == 7 else f"row {place}" for place in range(300)]
    names = [HOSTILE if place == 7 else str(place) for place in range(300)]
    pq.write_table(pa.table({"id": names, "body": texts}), made / "data" / "in.parquet")
    tables = [
        f'price_usd_per_hour = 3.6\nfronts = 2\njob_roots = ["{made / "data"}"]\n',
        f'[models.embed]\nmodel = "{made}/models.py:Embed"\nslo_ms = 60000\n',
    ]
    for name, (tenant, scope) in KEYS.items():
        digest = digest_of(f"key-of-{name}")
        tables.append(f'[keys.{name}]\nsha256 = "{digest}"\ntenant = "{tenant}"\nscopes = ["{scope}"]\n')
    (made / "server.toml").write_text("\n".join(tables))
    server = Server(made / "home", "--config", str(made / "server.toml"))
    yield House(server, made / "data")
    server.end()


def opened(browser: Any, **options: Any) -> tuple[Any, list[str]]:
    """A page, and what it complains of: a script or a style that the policy refuses is an error there."""
    page, said = browser.new_context(**options).new_page(), list[str]()
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    return page, said


def entered(browser: Any, house: House, name: str, read_only: bool = False, **options: Any) -> tuple[Any, list[str]]:
    page, said = opened(browser, **options)
    page.goto(house.path(""))
    page.get_by_label("API key").fill(f"key-of-{name}")
    if read_only:
        page.get_by_label("Read-only").check()
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="Now").wait_for()
    return page, said


def test_figures_move_and_charts_are_drawn_while_front_processes_answer(browser: Any, house: House) -> None:
    page, said = entered(browser, house, "root")
    rate = page.locator("[data-figure=rate]")
    embed = {"model": "embed", "input": "a red fox"}
    house.server.ask("POST", "/v1/embeddings", embed, {"authorization": "Bearer key-of-root"})
    rate.filter(has_not_text=re.compile("^0/s$")).wait_for()
    assert page.locator("canvas").count() == 4
    assert "Live" in page.locator("[data-status]").inner_text()
    sizes = page.evaluate("performance.getEntries().map(each => each.transferSize || 0)")
    assert sum(sizes) < 300_000
    page.get_by_role("button", name="Day").click()
    assert page.get_by_role("button", name="Day").get_attribute("aria-pressed") == "true"
    assert said == []


def test_a_job_is_submitted_followed_and_read_in_the_browser(browser: Any, house: House) -> None:
    page, said = entered(browser, house, "alice")
    page.goto(house.path("jobs"))
    page.get_by_role("link", name="New job").click()
    page.get_by_text("Files that you may use (1)").click()
    page.get_by_role("link", name="in.parquet").click()
    page.get_by_label("Text column").select_option("body")
    page.get_by_role("group", name="Columns to keep").get_by_label("id string").check()
    page.get_by_label("Output").fill(str(house.data / "out"))
    assert page.get_by_text("Estimated cost").count() == 1
    page.get_by_role("button", name="Start the job").click()
    page.locator("#job .state.done").wait_for()  # the page renews itself
    page.get_by_text(HOSTILE).first.wait_for()  # the row that has failed, by its kept column
    assert page.title().startswith("job-")
    assert page.locator("img").count() == 0
    job = page.url
    page.get_by_role("link", name="Report").click()
    assert page.get_by_text("rows").first.is_visible()
    assert said == []
    for name, status in (("bob", 404), ("rita", 200)):
        other, _ = entered(browser, house, name)
        assert other.goto(job).status == status
        assert other.locator("#job .actions button").count() == 0


def test_it_is_readable_without_scripts_and_a_read_only_login_stays_so(browser: Any, house: House) -> None:
    page, _ = entered(browser, house, "root", read_only=True, java_script_enabled=False)
    assert page.get_by_text("p99 within 60 s").count() == 1
    assert page.locator("[data-figure=replicas]").inner_text() == "1"
    page.goto(house.path("ask"))
    page.get_by_label("Text", exact=True).fill("a red fox")
    page.get_by_role("button", name="Ask").click()
    assert "read-only" in page.get_by_role("alert").inner_text()
    page, _ = entered(browser, house, "root", java_script_enabled=False)
    page.goto(house.path("ask"))
    page.get_by_label("Text", exact=True).fill("a red fox")
    page.get_by_label("Text to compare it with").fill("an old road")
    page.get_by_role("button", name="Ask").click()
    assert page.get_by_text("Cosine similarity").count() == 1
    assert page.get_by_text("forward").count() >= 1


def test_another_sites_page_can_do_nothing_here(browser: Any, house: House) -> None:
    page, _ = entered(browser, house, "alice")
    target = house.path("jobs")
    page.goto("data:text/html,<title>elsewhere</title>")
    page.set_content(f"<form method=post action='{target}'><input name=model value=embed><button>go</button></form>")
    with page.expect_response(target) as got:
        page.get_by_role("button").click()
    assert got.value.status == 403
    page.set_content(f"<iframe src='{house.path('')}'></iframe>")
    page.frames[-1].wait_for_load_state()
    assert page.frames[-1].locator("[name=key], [data-deployment]").count() == 0


def test_every_page_is_accessible_in_both_schemes_and_on_a_phone(browser: Any, house: House) -> None:
    axe = Path(sys.prefix) / "axe" / "node_modules" / "axe-core" / "axe.min.js"
    if not axe.exists():
        pytest.skip("axe-core is not installed: npm could not do it")
    found = dict[str, Any]()
    for options in ({}, {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}}):
        page, _ = entered(browser, house, "root", bypass_csp=True, **options)
        for name in PAGES:
            page.goto(house.path(name))
            page.add_script_tag(path=axe)
            for each in page.evaluate("axe.run()")["violations"]:
                found[f"{name} {each['id']}"] = [node["html"] for node in each["nodes"]][:3]
            if not page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
                found[f"{name} is wider than the screen"] = options
    assert found == {}


def test_a_server_ends_at_once_with_pages_open(browser: Any, house: House) -> None:
    page, _ = entered(browser, house, "root")
    page.locator("[data-status]", has_text="Live").wait_for()
    house.server.process.terminate()
    assert house.server.process.wait() == 0
