"""A small model whose rows fronts prepare, a replica over it, and fronts that are connected to it in one process."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from twoshift.engine import Engine
from twoshift.errors import OutOfMemory
from twoshift.fleet.answering import Answering
from twoshift.fleet.control import Loaded
from twoshift.fleet.front_connection import FrontConnection, connect_front
from twoshift.fleet.front_rows import FrontPreparing
from twoshift.fleet.link import Link
from twoshift.fleet.load_board import LoadBoard
from twoshift.fleet.replica_process import loaded_of
from twoshift.policy.cost import CallCost
from twoshift.policy.lane_values import LaneLimits
from twoshift.policy.plan.row import RowSize
from twoshift.ports import Columns, RuntimeInfo
from twoshift.runtime.encoder.tokens import TokenRows, concat
from twoshift.serve.derived import derive
from twoshift.serve.live_request import LiveRequest
from twoshift.serve.model import Answer, ServedModel

WAIT_S = 30.0
BAD, LARGE = "bad", "large"
COST = CallCost.line(1e-4, 1e-7)


class Letters:
    """Texts to the numbers of their letters, in any process."""

    def prepare(self, rows: Sequence[str]) -> TokenRows:
        ids = [np.frombuffer(row.encode("utf-32-le"), np.int32)[:64] for row in rows]
        offsets = np.cumsum([0, *map(len, ids)])
        return TokenRows(np.concatenate(ids), offsets, np.array([len(row) > 64 for row in rows]))

    def joined(self, parts: Sequence[TokenRows]) -> TokenRows:
        return concat(parts)

    def arrays_of(self, rows: TokenRows) -> Columns:
        return {"ids": rows.ids, "offsets": rows.offsets, "truncated": rows.truncated}

    def rows_of(self, arrays: Columns) -> TokenRows:
        return TokenRows(**arrays)


class Sums:
    """The sum of a text's letters. It waits at a gate, and fails over bad texts and over a large one beside others."""

    def __init__(self) -> None:
        self.row_preparer = Letters()
        self.info = RuntimeInfo("sums", "0", "fake", "cpu", "fp32", 64, ("sum", "letters"))
        self.gate = threading.Event()
        self.gate.set()
        self.calls: list[int] = []  # rows of each that has begun
        self._rows: Any = None

    def prepare(self, rows: Sequence[str]) -> TokenRows:
        return self.row_preparer.prepare(rows)

    def launch(self, parts: Sequence[Any], live: bool = False) -> Sums:
        self._rows = concat(parts)
        return self

    def wait(self) -> Columns:
        rows = self._rows
        self.calls.append(len(rows))
        assert self.gate.wait(WAIT_S)
        texts = [_text(rows, at) for at in range(len(rows))]
        if BAD in texts:
            raise ArithmeticError("this text is bad")
        if len(rows) > 1 and LARGE in texts:
            raise OutOfMemory("no memory for a large text and others")
        sums = [sum(map(ord, text)) for text in texts]
        return {"sum": np.array(sums), "letters": np.array([[len(text)] for text in texts], np.float32)}

    def close(self) -> None:
        pass


def _text(rows: TokenRows, at: int) -> str:
    return "".join(map(chr, rows.ids[rows.offsets[at] : rows.offsets[at + 1]].tolist()))


class FrontOfOne:
    """A front's link to the replica."""

    def __init__(self, loaded: Loaded, launches: Path | None = None) -> None:
        assert loaded.preparer is not None
        self.started: list[int] = []
        path = "" if launches is None else str(launches)
        self.link = Link(lambda _: None, lambda ids, _: self.started.extend(ids), lambda: None, launches_path=path)
        self._preparing = FrontPreparing("sums", loaded, loaded.preparer.unpacked)
        self._numbers = itertools.count()

    async def ask(self, *rows: str, timeout_s: float = WAIT_S, tenant: str = "", prepared: bool = True) -> Answer:
        now_s = time.monotonic()
        request = LiveRequest(rows, now_s + timeout_s, now_s, tenant)
        if not prepared:
            return await self.link.ask(next(self._numbers), request)
        given = await self._preparing.prepared(request, lambda _: 0.0)
        return await self.link.ask_prepared(next(self._numbers), given, request)

    def close(self) -> None:
        self.link.close()
        self._preparing.close()


class OneReplica:
    """A replica in this process, on the test's loop."""

    def __init__(self, board: Path | None = None, max_waiting: int = 256, max_rows: int = 16) -> None:
        self.runtime = Sums()
        limits = LaneLimits(slo_s=600.0, max_rows=max_rows)
        self.engine = Engine(self.runtime, COST, limits, max_waiting=max_waiting)
        self.model = ServedModel(
            "sums", self.engine, lambda cost: derive(cost, limits, RowSize.uniform(4), max_waiting)
        )
        self.loaded = loaded_of(self.model)
        self.answering = Answering(self.model, board=None if board is None else LoadBoard(board))

    async def front(self, launches: Path | None = None) -> tuple[FrontOfOne, FrontConnection]:
        """One more; `launches`: where it reads what is launched."""
        ours, theirs = socket.socketpair()
        connection = await connect_front(self.answering, theirs)
        front = FrontOfOne(self.loaded, launches)
        ours.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: front.link, sock=ours)
        return front, connection

    @property
    def inside(self) -> int:
        """Requests that the host counts as admitted and not over."""
        return self.answering.host.policy.backlog.inside


@asynccontextmanager
async def one_replica(fronts: int, **options: Any) -> AsyncIterator[tuple[OneReplica, list[FrontOfOne]]]:
    """With so many fronts."""
    replica = OneReplica(**options)
    made = [(await replica.front())[0] for _ in range(fronts)]
    try:
        async with asyncio.timeout(WAIT_S):
            yield replica, made
    finally:
        replica.runtime.gate.set()
        for front in made:
            front.close()
        await asyncio.to_thread(replica.model.close)
        await asyncio.sleep(0)


def total(text: str) -> int:
    """What the model answers."""
    return sum(map(ord, text[:64]))
