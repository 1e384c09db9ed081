"""Who may ask, and how much."""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import Callable, Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoshift.cli.key import _quoted
from twoshift.endpoints.faults import fault_of
from twoshift.errors import Denied, Forbidden, InvalidInput, OverLimit, TooLarge
from twoshift.serve.keys import ANYONE, Access, Caller, Keys, KeySettings, digest_of, new_key
from twoshift.serve.tenants import Tenant, TenantSettings


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@contextlib.contextmanager
def during(who: Caller, model: str) -> Iterator[None]:
    """A request."""
    who.enter(model)
    try:
        yield
    finally:
        who.leave()


def caller(clock: Callable[[], float], **settings: object) -> Caller:
    made = msgspec.convert({"sha256": digest_of("k"), **settings}, KeySettings)
    return Keys({"alice": made}, clock).caller("Bearer k")


def asked(who: Caller, model: str = "m") -> None:
    with during(who, model):
        pass


def test_a_key_is_new_each_time_and_only_its_digest_is_known() -> None:
    first, second = new_key(), new_key()
    assert first != second
    assert first.startswith("ts-")
    assert len(first) > 40
    keys = Keys({"a": KeySettings(digest_of(first)), "b": KeySettings(digest_of(second))})
    assert keys.caller(f"Bearer {first}").name == "a"
    assert keys.caller(f"bearer  {second} ").name == "b"


@pytest.mark.parametrize("given", [None, "", "Bearer", "Bearer ", "Basic a2V5", "k", "Bearer k2", "Bearer \xe9"])
def test_without_a_known_key_nobody_is_let_in(given: str | None) -> None:
    with pytest.raises(Denied) as told:
        Keys({"a": KeySettings(digest_of("k"))}).caller(given)
    assert fault_of(told.value).status == 401
    assert Keys({}).caller(given) is ANYONE


def test_every_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: seen.append((a, b)) or compare(a, b))
    keys = Keys({name: KeySettings(digest_of(name)) for name in ("a", "b", "c")})
    assert keys.caller("Bearer a").name == "a"
    assert len(seen) == 3  # also those after the right one
    assert all(len(a) == len(b) == 64 for a, b in seen)


def test_a_rate_has_a_burst_of_ten_seconds_and_says_when_to_come_back() -> None:
    clock = Clock()
    who = caller(clock, requests_per_minute=60)
    for _ in range(10):
        asked(who)
    with pytest.raises(OverLimit) as told:
        asked(who)
    assert told.value.retry_after_s == pytest.approx(1.0)
    assert fault_of(told.value).status == 429
    clock.now_s += 1.0
    asked(who)
    with pytest.raises(OverLimit):
        asked(who)
    clock.now_s += 1000
    for _ in range(10):
        asked(who)
    with pytest.raises(OverLimit):
        asked(who)


def test_a_slow_rate_lets_one_request_through() -> None:
    who = caller(Clock(), requests_per_minute=1)
    asked(who)
    with pytest.raises(OverLimit) as told:
        asked(who)
    assert told.value.retry_after_s == pytest.approx(60.0)


def test_only_so_many_requests_at_once() -> None:
    who = caller(Clock(), concurrency=2)
    with during(who, "m"), during(who, "m"), pytest.raises(OverLimit, match="alice has reached its limit of 2"):
        asked(who)
    asked(who)
    with pytest.raises(ValueError, match="mine"), during(who, "m"):
        raise ValueError("mine")
    with during(who, "m"):
        asked(who)


def test_a_key_may_be_for_some_models_only() -> None:
    who = caller(Clock(), models=["m", "n"])
    asked(who, "n")
    with pytest.raises(Forbidden, match="may use m, n, not o") as told:
        asked(who, "o")
    assert fault_of(told.value).status == 403


def test_what_is_refused_costs_nothing_of_the_rate() -> None:
    clock = Clock()
    who = caller(clock, requests_per_minute=6, concurrency=1, models=["m"])
    with pytest.raises(Forbidden):
        asked(who, "o")
    with during(who, "m"), pytest.raises(OverLimit, match="concurrent"):
        asked(who)
    with pytest.raises(OverLimit, match="6 requests per minute"):
        asked(who)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sha256", "x" * 64), ("sha256", "ts-secret"), ("sha256", "A" * 64), ("requests_per_minute", 0),
        ("requests_per_minute", float("nan")), ("concurrency", 0), ("scopes", ()), ("scopes", ("serve", "all")),
    ],
)  # fmt: skip
def test_settings_of_a_key_that_make_no_sense_are_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidInput, match=field):
        KeySettings(**({"sha256": digest_of("k")} | {field: value}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scopes", "may"),
    [
        (None, {"open", "key", "serve", "batch"}),
        (["serve"], {"open", "key", "serve"}),
        (["batch"], {"open", "key", "batch"}),
        (["deploy"], {"open", "key", "deploy"}),
        (["read"], {"open", "key", "read"}),
        (["admin"], {"open", "key", "serve", "batch", "deploy", "read", "admin"}),
    ],
)
def test_a_key_may_what_its_scopes_say(scopes: list[str] | None, may: set[str]) -> None:
    who = caller(Clock(), **({} if scopes is None else {"scopes": scopes}))
    for needs in Access:
        if needs in may:
            who.check(needs)
            continue
        with pytest.raises(Forbidden, match=f"scope {needs}; the key alice has") as told:
            who.check(needs)
        assert fault_of(told.value).status == 403
    assert who.is_admin is ("admin" in may)
    for needs in Access:
        ANYONE.check(needs)


def test_a_key_that_may_read_looks_at_jobs_and_changes_none() -> None:
    who = caller(Clock(), scopes=["read"])
    who.check(Access.BATCH, reads=True)
    for needs, reads in ((Access.BATCH, False), (Access.SERVE, True), (Access.ADMIN, True), (Access.DEPLOY, True)):
        with pytest.raises(Forbidden, match=f"scope {needs}"):
            who.check(needs, reads=reads)


def two_keys(clock: Clock, **limits: object) -> tuple[Caller, Caller]:
    """Of one tenant."""
    made = {name: KeySettings(digest_of(name), tenant="red") for name in ("alice", "anna")}
    keys = Keys(made, clock, {"red": msgspec.convert(limits, TenantSettings)})
    assert list(keys.tenants) == ["red"]
    return keys.caller("Bearer alice"), keys.caller("Bearer anna")


def test_a_tenants_rate_is_over_all_its_keys() -> None:
    clock = Clock()
    alice, anna = two_keys(clock, requests_per_second=1)
    for _ in range(5):
        asked(alice)
        asked(anna)
    for who in (alice, anna):
        with pytest.raises(OverLimit, match="the tenant red is over its limit of 1 requests per second") as told:
            asked(who)
        assert told.value.retry_after_s == pytest.approx(1.0)
    clock.now_s += 1
    asked(anna)
    with pytest.raises(OverLimit):
        asked(alice)


def test_what_the_tenants_rate_refuses_costs_nothing_of_the_keys() -> None:
    clock = Clock()
    key = KeySettings(digest_of("k"), requests_per_minute=12)  # two at once
    who = Keys({"a": key}, clock, {"a": TenantSettings(requests_per_second=0.1)}).caller("Bearer k")
    asked(who)
    for _ in range(5):
        with pytest.raises(OverLimit, match="tenant"):
            asked(who)
    clock.now_s += 10
    asked(who)


def test_spent_device_seconds_refuse_live_requests_and_let_jobs_wait() -> None:
    alice, _ = two_keys(Clock(), device_seconds_per_day=5)
    alice.of.spent(day=0, device_s=1e9)  # long ago
    asked(alice)
    import time

    alice.of.spent(day=int(time.time() // 86_400), device_s=5.0)
    with pytest.raises(OverLimit, match="5 device seconds for today"):
        asked(alice)
    alice.enter("m", live=False)
    alice.leave()


def test_what_is_stored_has_a_limit() -> None:
    tenant = Tenant("red", TenantSettings(stored_bytes=100))
    tenant.check_storage(60, 40)
    with pytest.raises(
        TooLarge, match="at most 40 bytes: the tenant already stores or uploads 60 of 100 bytes; delete some files"
    ) as told:
        tenant.check_storage(60, 41)
    assert fault_of(told.value).status == 413
    Tenant("blue").check_storage(1 << 60, 1 << 60)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_name_can_be_a_table_in_the_file(name: str) -> None:
    assert msgspec.toml.decode(f'[keys.{_quoted(name)}]\nsha256 = "0"') == {"keys": {name: {"sha256": "0"}}}
