"""Limits of connections that hold over all processes of a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools", reason="the serve extra is not installed")

from limit_processes import connect, start
from test_http_peers import entered

from twoshift.serve.http.http_error import HttpError
from twoshift.serve.http.peers import HttpLimits, Peers
from twoshift.serve.shared_limits import SharedLimits

OTHERS = 3
WAIT_S = 150.0  # against hangs
ADDRESS = "10.0.0.1"


@pytest.fixture
def limits(tmp_path: Path) -> Iterator[list[SharedLimits]]:
    """As two processes have them."""
    SharedLimits.create(tmp_path / "limits", {}, {}, 1 + OTHERS)
    with ExitStack() as opened:
        yield [opened.enter_context(closing(SharedLimits.open(tmp_path / "limits", each))) for each in range(2)]


def peers_of(limits: list[SharedLimits], **given: Any) -> list[Peers]:
    return [Peers(HttpLimits(**given), counts=each.connections) for each in limits]


@pytest.mark.parametrize(
    ("address", "given"),
    [
        ("127.0.0.1", HttpLimits(connections=200)),
        (ADDRESS, HttpLimits(connections=4000, address_connections=200)),
    ],
)
@pytest.mark.slow
def test_all_processes_together_let_no_more_connections_in(tmp_path: Path, address: str, given: HttpLimits) -> None:
    path = tmp_path / "limits"
    SharedLimits.create(path, {}, {}, 1 + OTHERS)
    found = [start(connect, 150, address, given, path, 1 + each) for each in range(OTHERS)]
    for _, said in found:
        assert said.poll(WAIT_S)
        said.recv()
    for _, said in found:
        said.send("begin")
    assert sum(said.recv() for _, said in found if said.poll(WAIT_S)) == 200
    for process, _ in found:
        process.join()
    with closing(SharedLimits.open(path, 0)) as left:
        assert (left.connections.total(), left.connections.at(address)) == (200, 200)
        for each in range(OTHERS):
            left.forget(1 + each)
        assert (left.connections.total(), left.connections.at(address)) == (0, 0)


def test_where_a_server_is_full_an_idle_connection_of_the_same_process_makes_room(limits: list[SharedLimits]) -> None:
    first, second = peers_of(limits, connections=2)
    idle = entered(first, ADDRESS)
    entered(second, "10.0.0.2", busy=True)
    with pytest.raises(HttpError, match="the server has too many open connections"):
        entered(second, "10.0.0.3")
    entered(first, "10.0.0.3")
    assert idle.aborted
    assert limits[1].connections.total() == 2


def test_an_address_has_its_limit_over_all_processes(limits: list[SharedLimits]) -> None:
    first, second = peers_of(limits, connections=100, address_connections=2)
    gone = entered(first, ADDRESS, busy=True)
    entered(second, ADDRESS, busy=True)
    entered(second, "10.0.0.2", busy=True)
    for peers in (first, second):
        with pytest.raises(HttpError, match=r"10\.0\.0\.1 has more than 2 connections"):
            entered(peers, ADDRESS)
    first.leave(gone)
    entered(second, ADDRESS, busy=True)


def test_places_of_addresses_are_used_again(limits: list[SharedLimits]) -> None:
    counts = limits[0].connections
    for number in range(20_000):  # more than there are places
        counts.add(f"10.0.{number}")
        assert counts.at(f"10.0.{number}") == 1
        counts.remove(f"10.0.{number}")
    assert counts.total() == 0


def test_more_addresses_than_places_have_the_limit_of_all(limits: list[SharedLimits]) -> None:
    counts, addresses = limits[0].connections, [f"10.0.{number}" for number in range(20_000)]
    for each in addresses:
        counts.add(each)
    known = [each for each in addresses if counts.at(each)]
    assert 0 < len(known) < len(addresses) == counts.total()
    for each in addresses:
        counts.remove(each)
    assert counts.total() == 0
    assert not any(counts.at(each) for each in addresses)
    counts.add("10.1")
    assert limits[1].connections.at("10.1") == 1
