"""What the connections of a server share: limits, room for bodies, and who goes when there are too many."""

from __future__ import annotations

import ipaddress
from asyncio import Future
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from twoshift.serve.connection_counts import ConnectionCounts, OwnConnectionCounts
from twoshift.serve.http.body import BodyRoom
from twoshift.serve.http.heads import Heads
from twoshift.serve.http.http_error import HttpError
from twoshift.serve.http.large import LargeBodies
from twoshift.serve.http.messages import Admission, Request

if TYPE_CHECKING:
    from twoshift.serve.http.gate import Gate
    from twoshift.serve.http.handover import Handover

__all__ = ["Admit", "HeadDecisions", "HttpLimits", "Peer", "Peers", "Streams"]

Admit = Callable[[Request], Admission | None]  # on a request's head; None: its handler decides
Streams = Callable[[str, bytes], bool]  # whether a method and target take their body as it comes in
_FULL_S = 1.0


def _never(_method: str, _target: bytes) -> bool:
    return False


def _undecided(_request: Request) -> None:
    return None


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What a client may cost."""

    header_bytes: int = 32 << 10
    headers: int = 100
    body_bytes: int = 64 << 20  # also when unpacked
    bodies_bytes: int = 256 << 20  # of all large bodies together
    head_s: float = 10.0  # for a request's line and headers
    body_s: float = 30.0  # between two pieces of a body, and for a piece of a reply to be taken
    whole_body_s: float = 120.0
    idle_s: float = 75.0  # between requests
    linger_s: float = 2.0  # for a refused peer to read why, while it still sends
    half_closed_s: float = 10.0  # for a reply to a peer that sends no more: it waits for it, or has gone
    connections: int = 4096
    address_connections: int | None = None  # of one address; None: a quarter of them
    proxies: frozenset[str] = frozenset()  # addresses that many clients share; those of this machine always may


@dataclass(frozen=True, slots=True)
class HeadDecisions:
    """What is decided on a request's head, before its body is read."""

    admit: Admit = _undecided
    streams: Streams = _never
    gate: Gate | None = None  # refuses what the host has no time for


class Peer(Protocol):
    """A connection, as the others know it."""

    @property
    def address(self) -> str: ...

    def stop(self) -> None:
        """Take no further request."""
        ...

    def sweep(self, now_s: float) -> None:
        """End it where its time has passed."""
        ...

    def abort(self) -> None:
        """End it now."""
        ...


class Peers:
    """Every connection of a server, and what they share."""

    def __init__(
        self,
        limits: HttpLimits,
        decisions: HeadDecisions | None = None,
        handover: Handover | None = None,
        counts: ConnectionCounts | None = None,  # those of other processes among them
        heads: Heads | None = None,
    ) -> None:
        decisions = decisions or HeadDecisions()
        self.limits, self.gate = limits, decisions.gate
        self.streams, self.admit = decisions.streams, decisions.admit
        self.handover = handover  # of connections whose requests another process answers
        self.open: set[Peer] = set()
        self.idle: dict[Peer, None] = {}  # those without a request, the idlest first
        self.room = BodyRoom(max(limits.bodies_bytes, 2 * limits.body_bytes))
        self.large = LargeBodies(self.room)
        self.heads = heads or Heads()
        self._counts: ConnectionCounts = counts or OwnConnectionCounts()

    def enter(self, made: Peer) -> None:
        """One more, in place of an idle one where there are too many; raises HttpError where none is idle."""
        with self._counts.guard():
            self._check(made.address)
            self._counts.add(made.address)
        self.open.add(made)
        self.idle[made] = None

    def leave(self, gone: Peer) -> None:
        """One less; what is gone already stays so."""
        if gone not in self.open:
            return
        self.open.remove(gone)
        self.idle.pop(gone, None)
        self._counts.remove(gone.address)

    def turn_of(self, asked: Request | HttpError) -> Future[None] | None:
        """Done once a request may begin, where that is not now."""
        return None if self.gate is None or isinstance(asked, HttpError) else self.gate.turn_of(asked)

    def _check(self, address: str) -> None:
        limits, counts = self.limits, self._counts
        most = limits.address_connections or max(1, limits.connections // 4)
        if counts.at(address) >= most and not _is_shared(address, limits.proxies) and not self._end_idlest(address):
            raise HttpError(
                503,
                f"the client address {address} has more than {most:,} connections to this server",
                retry_after_s=_FULL_S,
            )
        if counts.total() >= limits.connections and not self._end_idlest():
            raise HttpError(503, "the server has too many open connections", retry_after_s=_FULL_S)

    def _end_idlest(self, address: str | None = None) -> bool:
        """Ends the one of this process that has been idle for the longest; False where there is none."""
        found = next((each for each in self.idle if address in (None, each.address)), None)
        if found is None:
            return False
        self.leave(found)
        found.abort()
        return True


def _is_shared(address: str, proxies: frozenset[str]) -> bool:
    """Whether many clients may have it: a proxy's, or this machine's, where one may run."""
    if address in proxies:
        return True
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # no network's: a socket of this machine
        return True
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback
