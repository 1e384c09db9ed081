"""What other processes do with limits that they share."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

from twoshift.errors import OverLimit
from twoshift.serve.keys import Caller, Keys, KeySettings, digest_of
from twoshift.serve.shared_limits import SharedLimits
from twoshift.serve.tenants import TenantSettings

SPAWN = multiprocessing.get_context("spawn")
_TURN_S = 1e-5  # asking the time lets others go on, between a check and what follows from it


def callers(
    path: Path, process: int, keys: dict[str, KeySettings], tenants: dict[str, TenantSettings], now_s: float = 0.0
) -> list[Caller]:
    """The keys as such a process has them, at a time that does not pass."""

    def clock() -> float:
        time.sleep(_TURN_S)
        return now_s

    made = Keys(keys, clock, tenants, SharedLimits.open(path, process))
    return [made.caller(f"Bearer {name}") for name in keys]


def key(name: str, **limits: Any) -> KeySettings:
    """One whose secret is its name, of the tenant red."""
    return KeySettings(digest_of(name), tenant="red", **limits)


def start(target: Callable[..., None], *given: Any) -> tuple[BaseProcess, Connection]:
    """A process, and what it says; its function gets the other end first."""
    ours, theirs = SPAWN.Pipe()
    made = SPAWN.Process(target=target, args=(theirs, *given), daemon=True)
    made.start()
    theirs.close()
    return made, ours


def take(said: Connection, tries: int, *given: Any) -> None:
    """Says how many requests of each key were let in, once it is told to begin."""
    found = callers(*given)
    said.send("ready")
    said.recv()
    let_in = [0] * len(found)
    for _ in range(tries):
        for number, who in enumerate(found):
            let_in[number] += _is_let_in(who)
    said.send(let_in)


def come_and_go(said: Connection, requests: int, inside: Any, *given: Any) -> None:
    """Asks until so many requests were let in; says how many of all processes were inside at most."""
    (who,) = callers(*given)
    said.send("ready")
    said.recv()
    let_in = fullest = 0
    while let_in < requests:
        if _is_let_in(who):
            with inside.get_lock():
                inside.value += 1
                let_in, fullest = let_in + 1, max(fullest, inside.value)
            time.sleep(_TURN_S)
            with inside.get_lock():
                inside.value -= 1
            who.leave()
    said.send(fullest)


class Connected:
    """As far as its peers know a connection; it always has a request."""

    def __init__(self, address: str) -> None:
        self._address = address

    @property
    def address(self) -> str:
        time.sleep(_TURN_S)
        return self._address

    def abort(self) -> None:
        """It has a request."""


def connect(said: Connection, tries: int, address: str, limits: Any, path: Path, process: int) -> None:
    """Says how many connections from an address were let in, once it is told to begin; they stay open."""
    from twoshift.serve.http.http_error import HttpError
    from twoshift.serve.http.peers import Peers

    peers, let_in = Peers(limits, counts=SharedLimits.open(path, process).connections), 0
    said.send("ready")
    said.recv()
    for _ in range(tries):
        try:
            peers.enter(made := cast(Any, Connected(address)))
        except HttpError:
            continue
        peers.idle.pop(made)
        let_in += 1
    said.send(let_in)


def stay(said: Connection, requests: int, *given: Any) -> None:
    """Has so many requests running until it is killed."""
    (who,) = callers(*given)
    for _ in range(requests):
        who.enter("m")
    said.send("inside")
    time.sleep(3600)


def stay_locked(said: Connection, path: Path, process: int, keys: dict[str, KeySettings]) -> None:
    """Is between the check of a limit and its taking until it is killed."""

    def clock() -> float:
        said.send("locked")
        time.sleep(3600)
        return 0.0

    Keys(keys, clock, {}, SharedLimits.open(path, process)).caller(f"Bearer {next(iter(keys))}").enter("m")


def _is_let_in(who: Caller) -> bool:
    try:
        who.enter("m")
    except OverLimit:
        return False
    return True
