"""Who may look and who may act: keys, cookies, other sites' pages, and names that are markup."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator

import pytest

pytest.importorskip("jinja2", reason="the serve extra is not installed")
pytest.importorskip("httptools", reason="the serve extra is not installed")

from console_app import HOSTILE, ConsoleApp, console_app, header

from twoshift.serve.deployments import Deployment

KEYS = {
    "root": {"scopes": ("admin",)},
    "alice": {"tenant": "red", "models": ("m",)},
    "other": {"tenant": "blue", "models": ("elsewhere",)},
}


@pytest.fixture
def keyed() -> Iterator[ConsoleApp]:
    with console_app(keys=KEYS) as (made, _):
        yield made


@pytest.fixture
def free() -> Iterator[ConsoleApp]:
    with console_app() as (made, _):
        yield made


def test_a_probe_gets_what_it_knows_and_a_browser_gets_a_page(free: ConsoleApp) -> None:
    assert free.ask("GET", "/", accept="*/*").body == b'{"status":"alive"}'
    assert free.ask("GET", "/", accept="", host="service.example").status == 200
    assert 'data-deployment="m"' in free.page()


def test_who_has_no_session_is_asked_for_a_key_and_sees_nothing(keyed: ConsoleApp) -> None:
    for path in ("/", "/console/events", "/console/history/m"):
        reply = keyed.ask("GET", path)
        assert (reply.status, header(reply, b"location"), reply.body) == (303, "/console/login", b"")
    assert "deployment" not in keyed.page("/console/login")


def test_a_login_sets_a_cookie_that_no_script_and_no_other_site_can_use(keyed: ConsoleApp) -> None:
    cookie = header(keyed.login("root"), b"set-cookie")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert "key-of-root" not in cookie
    assert 'data-deployment="m"' in keyed.page()


def test_under_tls_the_cookie_is_sent_over_tls_alone() -> None:
    with console_app(keys=KEYS, tls_cert="cert.pem", tls_key="key.pem") as (made, _):
        cookie = header(made.login("root"), b"set-cookie")
    assert cookie.startswith("__Host-")
    assert cookie.endswith("; Secure")


def test_a_wrong_key_gets_no_cookie(keyed: ConsoleApp) -> None:
    reply = keyed.login("nobody")
    assert (reply.status, header(reply, b"set-cookie")) == (401, "")
    assert b"does not know the API key" in reply.body


def test_a_session_ends_with_a_form_of_its_own_page(keyed: ConsoleApp) -> None:
    keyed.login("root")
    cookie = keyed.cookie
    assert keyed.post("/console/logout", b"token=guessed").status == 403
    assert keyed.ask("GET", "/").status == 200
    assert keyed.send("/console/logout").status == 303
    keyed.cookie = cookie
    assert keyed.ask("GET", "/").status == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site", "origin": "http://evil.example"},
        {"sec_fetch_site": "same-site", "origin": "http://127.0.0.1:9000"},
        {"sec_fetch_site": "", "origin": "http://evil.example"},
        {"sec_fetch_site": "", "origin": "null"},
        {"sec_fetch_site": "", "origin": ""},
        {"sec_fetch_site": "", "origin": "http://["},
    ],
)
def test_what_another_site_makes_a_browser_send_is_refused(keyed: ConsoleApp, headers: dict[str, str]) -> None:
    given = {each.replace("_", "-"): value for each, value in headers.items()}
    reply = keyed.post("/console/login", b"key=key-of-root", **given)
    assert (reply.status, header(reply, b"set-cookie")) == (403, "")


def test_a_body_of_a_stranger_is_bounded(keyed: ConsoleApp) -> None:
    assert keyed.post("/console/login", b"key=" + b"a" * (1 << 20)).status == 413
    assert keyed.post("/console/login", transfer_encoding="chunked").status == 413
    assert keyed.post("/console/login", gzip.compress(b"key=key-of-root"), content_encoding="gzip").status == 400


def test_who_logs_in_again_and_again_ends_nobody_elses_session(keyed: ConsoleApp) -> None:
    keyed.login("root")
    root, keyed.cookie = keyed.cookie, ""
    keyed.login("alice")
    first = keyed.cookie
    for _ in range(50):
        keyed.login("alice")
    assert keyed.ask("GET", "/").status == 200
    keyed.cookie = root
    assert keyed.ask("GET", "/").status == 200
    keyed.cookie = first
    assert keyed.ask("GET", "/").status == 303


def test_another_sites_name_that_points_here_shows_nothing_without_keys(free: ConsoleApp) -> None:
    assert free.ask("GET", "/", host="evil.example:8000").status == 403
    for host in ("localhost:8000", "[::1]:8000", "10.0.0.7", "models.localhost"):
        assert free.ask("GET", "/", host=host).status == 200
    with console_app(console_hosts=["gpu-7.example"]) as (named, _):
        assert named.ask("GET", "/", host="gpu-7.example:8000").status == 200


def test_every_page_keeps_to_itself(keyed: ConsoleApp) -> None:
    for reply in (keyed.ask("GET", "/console/login"), keyed.login("root"), keyed.ask("GET", "/")):
        content = header(reply, b"content-security-policy")
        assert "default-src 'none'" in content
        assert "unsafe" not in content
        assert "frame-ancestors 'none'" in content
        assert header(reply, b"x-frame-options") == "DENY"
        assert header(reply, b"x-content-type-options") == "nosniff"
        assert header(reply, b"cache-control") == "no-store"


def test_a_key_sees_its_own_models_and_not_what_others_ask_of_them(keyed: ConsoleApp) -> None:
    keyed.login("root")
    assert 'data-figure="rate"' in keyed.page()
    keyed.login("alice")
    page = keyed.page()
    assert 'data-deployment="m"' in page
    assert 'data-figure="rate"' not in page
    assert set(keyed.ask("GET", "/console/history/m").body.decode().split('"')[1::2]) == {"at", "p50", "p99"}
    keyed.login("other")
    assert "data-deployment=" not in keyed.page()
    assert keyed.ask("GET", "/console/history/m").status == 404


def test_names_that_are_markup_are_shown_and_not_obeyed(free: ConsoleApp) -> None:
    free.models.add(Deployment(HOSTILE))
    free.look()
    page = free.page()
    assert "<img" not in page
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_assets_are_kept_by_browsers_and_are_all_there_is(free: ConsoleApp) -> None:
    sources = re.findall(r'(?:src|href)="(/console/assets/[^"]+)"', free.page())
    assert len(sources) == 3
    replies = [free.ask("GET", each) for each in sources]
    assert all("immutable" in header(each, b"cache-control") for each in replies)
    assert sum(len(each.body) for each in replies) + len(free.page()) < 300_000
    assert free.ask("GET", "/console/assets/..%2Fconsole.py").status == 404
    assert not re.search(r"https?://(?!127\.0\.0\.1)", free.page())
