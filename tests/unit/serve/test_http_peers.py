"""Who may connect where many do: idle ones make room, and no address takes it all."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("httptools", reason="the serve extra is not installed")
pytest.importorskip("uvloop", reason="the serve extra is not installed")

from tried_server import TriedServer, everything, statuses

from twoshift.serve.connection_counts import OwnConnectionCounts
from twoshift.serve.http.http_error import HttpError
from twoshift.serve.http.peers import HttpLimits, Peers

GET = b"GET /a HTTP/1.1\r\nhost: a\r\n\r\n"


class _Made:
    """As far as its peers know it."""

    def __init__(self, address: str) -> None:
        self.address, self.aborted = address, False

    def abort(self) -> None:
        self.aborted = True


def entered(peers: Peers, address: str, busy: bool = False) -> Any:
    made: Any = _Made(address)
    peers.enter(made)
    if busy:
        peers.idle.pop(made)
    return made


def test_the_idlest_makes_room_for_a_new_one() -> None:
    peers = Peers(HttpLimits(connections=3, address_connections=3))
    first, second, third = (entered(peers, "10.0.0.1") for _ in range(3))
    peers.idle[first] = peers.idle.pop(first)  # it has just had a reply
    fourth = entered(peers, "10.0.0.2")
    assert (first.aborted, second.aborted, third.aborted) == (False, True, False)
    assert peers.open == {first, third, fourth}


def test_where_nobody_is_idle_a_new_one_is_refused() -> None:
    peers = Peers(HttpLimits(connections=2, address_connections=2))
    for _ in range(2):
        entered(peers, "10.0.0.1", busy=True)
    with pytest.raises(HttpError, match="the server has too many open connections"):
        entered(peers, "10.0.0.2")


@pytest.mark.parametrize("limits", [HttpLimits(connections=8), HttpLimits(connections=100, address_connections=2)])
def test_an_address_has_a_limit_and_makes_room_of_its_own(limits: HttpLimits) -> None:
    peers = Peers(limits)
    other = entered(peers, "10.0.0.2")
    first, second = entered(peers, "10.0.0.1", busy=True), entered(peers, "10.0.0.1")
    third = entered(peers, "10.0.0.1", busy=True)
    assert (other.aborted, first.aborted, second.aborted) == (False, False, True)
    with pytest.raises(HttpError, match=r"10\.0\.0\.1 has more than 2 connections") as caught:
        entered(peers, "10.0.0.1")
    assert (caught.value.status, caught.value.retry_after_s) == (503, 1.0)
    peers.leave(third)
    entered(peers, "10.0.0.1")


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "10.0.0.9", ""])
def test_an_address_that_many_share_has_the_limit_of_all(address: str) -> None:
    peers = Peers(HttpLimits(connections=8, address_connections=1, proxies=frozenset({"10.0.0.9"})))
    for _ in range(8):
        entered(peers, address, busy=True)
    assert len(peers.open) == 8


def test_addresses_are_forgotten_with_their_last_connection() -> None:
    counts = OwnConnectionCounts()
    peers = Peers(HttpLimits(), counts=counts)
    made = [entered(peers, f"10.0.{number}.1") for number in range(200)]
    for each in made * 2:
        peers.leave(each)
    assert (peers.open, peers.idle, counts._at, counts.total()) == (set(), {}, {}, 0)


def test_a_new_client_gets_in_at_once_where_idle_ones_fill_the_server() -> None:
    server = TriedServer()
    server.start(HttpLimits(connections=20))
    try:
        with ExitStack() as open_:
            idle = [open_.enter_context(server.connection()) for _ in range(30)]
            for each in idle[-5:]:
                each.sendall(GET)
                assert b" 200 " in each.recv(1 << 16)
            for _ in range(12):
                assert statuses(server.said_to(GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))) == [200]
            for each in idle[-5:]:  # they were used later than the others
                each.sendall(GET)
                assert b" 200 " in each.recv(1 << 16)
            assert everything(idle[0]) == b""
        server.until(lambda: not server.server.peers.open)
        assert not server.server.peers.idle
    finally:
        server.end()
