"""A replica process that several fronts ask: where they find it, and that their answers are the same."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from waiting import until, until_async

pytest.importorskip("uvloop")

from twoshift.errors import InvalidInput, TryLater
from twoshift.fleet.child import Child
from twoshift.fleet.control import Loaded, LoadFailed
from twoshift.fleet.live_folder import LiveFolder
from twoshift.fleet.load_board import LoadBoard
from twoshift.fleet.model import FleetModel
from twoshift.fleet.replica_process import ReplicaSpec
from twoshift.runtime.encoder.folder import find_minilm
from twoshift.serve.completions import Completions
from twoshift.serve.live_request import LiveRequest
from twoshift.serve.model import Answer
from twoshift.serve.model_settings import ModelSettings
from twoshift.types import Lane, ReplicaCounts
from twoshift.wiring.served_models import served_model

TEXTS = ["a red fox", "", "an old road " * 200, "é", "words that are in no list: qzx"]


def test_only_its_user_may_look_into_a_replicas_folder() -> None:
    folder = LiveFolder.make()
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    with folder.listen():
        assert stat.S_ISSOCK(Path(folder.live_path).stat().st_mode)
    LoadBoard(folder.board_path)
    folder.remove()
    assert not folder.path.exists()


def test_a_folder_for_temporary_files_with_a_long_name_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    folder = LiveFolder.make()
    folder.listen().close()
    folder.remove()
    assert not [*long.iterdir()]


def test_a_folder_whose_maker_was_killed_is_removed_by_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # pytest's own names are too long for a socket
        monkeypatch.setattr(tempfile, "tempdir", short)
        script = "import os; from twoshift.fleet.live_folder import LiveFolder; print(LiveFolder.make().path); "
        script += "os.sys.stdout.flush(); os.kill(os.getpid(), 9)"
        told = subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, "TMPDIR": short}, stdout=subprocess.PIPE
        )
        left, kept = Path(told.stdout.decode().strip()), LiveFolder.make()
        assert left.is_dir()  # it is new: its maker may be about to lock it
        for each in (left, kept.path):
            os.utime(each, (0.0, 0.0))
        LiveFolder.make().remove()
        assert not left.exists()
        assert kept.path.is_dir()
        kept.remove()


class Door:
    """The way of one more front to a replica."""

    same_clock: ClassVar[bool] = True

    def __init__(self, path: str) -> None:
        self._path = path

    def send(self, message: Any) -> None:
        raise AssertionError(message)

    async def take_live(self) -> socket.socket:
        live = socket.socket(socket.AF_UNIX)
        live.setblocking(False)
        await asyncio.get_running_loop().sock_connect(live, self._path)
        return live


class Shared:
    """One replica that somebody else has started; it is its own fleet."""

    scales_itself: ClassVar[bool] = False
    crashes, cold_start_s, wakes_in_s = 0, 0.0, lambda _: None

    def __init__(self, opened: Loaded) -> None:
        self.number, self.opened, self.child = 0, opened, Door(opened.live_path)
        self.link = self.beat = self.lanes = None
        self.gone, self.was_killed = "", False

    def start(self) -> None: ...

    def members(self) -> Sequence[Any]:
        return [self]

    def replicas(self) -> ReplicaCounts:
        return ReplicaCounts(1)

    def scale_to(self, replicas: int) -> None: ...

    def replace(self, member: Any, why: str) -> None: ...

    def killed(self) -> Sequence[int]:
        return ()

    def why_none(self) -> str:
        return "it is gone"

    def close(self) -> None: ...


@contextlib.contextmanager
def replica(model: str) -> Iterator[tuple[Child, Loaded]]:
    child = Child(ReplicaSpec("m", ModelSettings(model=model, slo_ms=5000.0, threads=1), served_model), None)
    found = list[Loaded]()

    def is_loaded() -> bool:
        said, over = child.heard()
        failed = [message for message in said if isinstance(message, LoadFailed)]
        assert (failed, over) == ([], False)
        found.extend(message for message in said if isinstance(message, Loaded))
        return bool(found)

    try:
        until(is_loaded)
        yield child, found[0]
    finally:
        child.ask_to_stop()
        child.bury(time.monotonic() + 20.0)


@contextlib.asynccontextmanager
async def fronts(opened: Loaded, *prepares: bool) -> AsyncIterator[list[FleetModel]]:
    made = [FleetModel("m", each) for each in prepares]
    for front in made:
        front.open(Shared(opened))
        front.start(Completions())
    try:
        yield made
    finally:
        for front in made:
            if (link := front.group.fleet.members()[0].link) is not None:
                link.close()
            front.close()
            await until_async(lambda front=front: front.group.health().reason)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


async def asked(front: FleetModel, *rows: Any, timeout_s: float = 60.0) -> Answer:
    now_s = time.monotonic()
    return await front.answer(LiveRequest(rows, now_s + timeout_s, now_s))


@pytest.mark.slow
def test_rows_that_fronts_prepare_are_answered_as_those_that_the_replica_prepares() -> None:
    try:
        find_minilm()
    except InvalidInput:
        pytest.skip("the weights of minilm are not installed")

    async def test(opened: Loaded) -> None:
        async with fronts(opened, True, True, False) as (first, second, plain):
            for texts in (*([text] for text in TEXTS), TEXTS):
                expected = await asked(plain, *texts)
                for front in (first, second):
                    answer = await asked(front, *texts)
                    assert (answer.tokens, answer.truncated) == (expected.tokens, expected.truncated)
                    for row, other in zip(answer.rows, expected.rows, strict=True):
                        np.testing.assert_array_equal(row["embedding"], other["embedding"])
                    assert answer.stages.prepare > 0
                    assert answer.stages.forward > 0
            assert all(front.health().healthy for front in (first, second))
            await until_async(lambda: first.stats().lanes[Lane.ONLINE].rows >= 30)

    with replica("minilm") as (_, opened):
        asyncio.run(test(opened))
        assert Path(opened.live_path).exists()
    assert not Path(opened.live_path).parent.exists()


@pytest.mark.slow
def test_a_front_knows_what_the_others_have_sent_and_that_its_replica_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path / "home"))
    (tmp_path / "m.py").write_text(
        "import os, pathlib, time\nclass Gated:\n    example = {'x': 1.0}\n    def load(self): pass\n"
        "    def predict(self, batch):\n        if batch['x'].max() > 1:\n"
        f"            pathlib.Path({str(tmp_path / 'begun')!r}).touch()\n"
        f"            while not os.path.exists({str(tmp_path / 'gate')!r}): time.sleep(0.005)\n"
        "        return {'y': batch['x']}\n"
    )

    async def test(child: Child, opened: Loaded) -> None:
        assert opened.preparer is None
        async with fronts(opened, True, True) as (busy, idle):
            assert idle.finish_in_s(100, 1, 5.0) == 0.0
            held = asyncio.ensure_future(asked(busy, {"x": 2.0}))
            await until_async((tmp_path / "begun").exists)
            waiting = [asyncio.ensure_future(asked(busy, {"x": 1.0})) for _ in range(50)]
            await until_async(lambda: busy.waiting()[Lane.ONLINE].rows == 50)
            assert idle.finish_in_s(100, 1, 5.0) > 0.0
            (tmp_path / "gate").touch()
            assert [float(each.rows[0]["y"]) for each in await asyncio.gather(held, *waiting)] == [2.0] + [1.0] * 50
            await until_async(lambda: idle.finish_in_s(100, 1, 5.0) == 0.0)
            child.kill()
            await until_async(lambda: not idle.health().healthy)
            with pytest.raises(TryLater, match="no replica is available"):
                await asked(idle, {"x": 1.0})

    with replica(f"{tmp_path / 'm.py'}:Gated") as given:
        asyncio.run(test(*given))
