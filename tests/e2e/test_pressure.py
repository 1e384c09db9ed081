"""A server that is asked for too much, too slowly, or for what its model cannot do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from servers import Got, Server, until

pytestmark = pytest.mark.slow
MODEL = "Troubled"
MOST_WAITING = 8


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Server]:
    words = ["--slo-ms", "1000", "--max-waiting", str(MOST_WAITING)]
    made = Server(home, f"{home / 'models.py'}:{MODEL}", *words)
    yield made
    made.end()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(40) as made:
        yield made


def patient(server: Server, given: object) -> Got:
    return server.embed(MODEL, given, x_request_timeout_ms="60000")


@contextmanager
def busy(server: Server, pool: ThreadPoolExecutor, seconds: float) -> Iterator[Future[Got]]:
    """While a call is on the device, so that what comes now waits together."""
    with TemporaryDirectory() as folder:
        told = Path(folder, "told")
        running = pool.submit(patient, server, f"sleep {seconds} {told}")
        until(told.exists)
        yield running
        assert running.result().status == 200


def test_what_is_too_much_is_refused_at_once_and_told_when_to_come_back(
    server: Server, pool: ThreadPoolExecutor
) -> None:
    with busy(server, pool, 3) as running:
        asked = [pool.submit(patient, server, "a b") for _ in range(3 * MOST_WAITING)]
        until(lambda: sum(each.done() for each in asked) == 2 * MOST_WAITING)
        assert not running.done()  # nobody waited for it to be told no
        refused = [each.result() for each in asked if each.done()]
        assert {got.status for got in refused} == {503}
        for got in refused:
            assert int(got.headers["retry-after"]) >= 1
            assert float(got.headers["retry-after-ms"]) > 0
            assert "x-should-retry" not in got.headers
        assert server.counted("waiting_rows", lane="online") == MOST_WAITING
        assert server.counted("refusals_total", reason="overloaded") >= len(refused)
    assert [each.result().status for each in asked].count(200) == MOST_WAITING


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("x" * 4000, "4,000 characters"),
        ("x " * 60, "at most 50 tokens"),
        (["x"] * (MOST_WAITING + 1), "at most 8 rows in a request"),
    ],
)
def test_what_can_never_fit_is_not_to_be_sent_again(server: Server, given: object, told: str) -> None:
    got = patient(server, given)
    assert got.status == 413
    assert got.headers["x-should-retry"] == "false"
    assert "retry-after" not in got.headers
    assert told in got.message


@pytest.mark.parametrize("given", ["sleep 1.5", "wait 1.5"])
def test_a_deadline_is_kept_in_the_queue_and_in_preparation(server: Server, given: str) -> None:
    got = server.embed(MODEL, given, x_request_timeout_ms="200")
    assert got.status == 504
    assert patient(server, "a").status == 200  # the device, or the thread, is free again


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "soon", "", "3600001"])
def test_a_deadline_that_is_none_is_refused(server: Server, given: str) -> None:
    got = server.embed(MODEL, "a", x_request_timeout_ms=given)
    assert got.status == 400
    assert "x-request-timeout-ms" in got.message


def test_a_row_that_raises_has_the_error_alone(server: Server, pool: ThreadPoolExecutor) -> None:
    failed = server.counted("failed_calls_total")
    with busy(server, pool, 1):
        asked = [pool.submit(patient, server, given) for given in ("a", "bb", "raise", "dddd", ["eeeee", "raise it"])]
        until(lambda: server.counted("waiting_rows", lane="online") == 6)
    a, b, bad, d, mixed = (each.result() for each in asked)
    assert [got.json()["data"][0]["embedding"][0] for got in (a, b, d)] == [1.0, 2.0, 4.0]
    assert bad.status == 500
    assert "this text is bad" in bad.message
    assert mixed.status == 500
    assert "row 1 of 2" in mixed.message
    assert server.counted("failed_calls_total") > failed


def test_a_call_that_does_not_fit_the_memory_is_split(server: Server, pool: ThreadPoolExecutor) -> None:
    before = server.counted("out_of_memory_calls_total")
    with busy(server, pool, 1):
        asked = [pool.submit(patient, server, given) for given in ("memory", "a", "bb", "ccc")]
        until(lambda: server.counted("waiting_rows", lane="online") == 4)
    assert [each.result().status for each in asked] == [200] * 4
    assert server.counted("out_of_memory_calls_total") > before
    assert server.counted("max_call_tokens") <= 4
    got = patient(server, "never")
    assert got.status == 503
    assert got.headers["retry-after"] == "1"
    assert patient(server, "a text of many more words than the cap").status == 200
    assert server.ask("GET", "/readyz").status == 200


def test_numbers_that_are_none_are_an_error_and_not_null(server: Server) -> None:
    got = patient(server, "nan")
    assert got.status == 500
    assert "NaN or infinity" in got.message


def test_dimensions_that_a_model_does_not_have_cost_no_call(server: Server) -> None:
    calls = server.counted("calls_total")
    got = server.ask("POST", "/v1/embeddings", {"model": MODEL, "input": "a", "dimensions": 3})
    assert got.status == 400
    assert "from 1 to 2" in got.message
    assert server.counted("calls_total") == calls


def stages(got: Got) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"(\w+);dur=([\d.]+)", got.headers["server-timing"])}


def test_every_stage_is_in_the_reply(server: Server) -> None:
    found = stages(patient(server, "sleep 0.2"))
    assert [*found] == ["admit", "lookup", "prepare", "queue", "forward", "finish"]
    assert found["forward"] >= 200
