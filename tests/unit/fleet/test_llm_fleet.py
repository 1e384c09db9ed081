"""A language model with replica processes: streams from either, one killed before and after its first token."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_llm import FakeLlm, words_after
from fake_llm_replica import open_fake_llm

from twoshift.errors import InvalidInput, TryLater
from twoshift.fleet.llm_model import FleetLlm
from twoshift.fleet.replica_process import ReplicaSpec
from twoshift.fleet.scaling import model_counts
from twoshift.fleet.supervisor import Supervisor
from twoshift.generation import Delta, GenerationParams, GenerationRequest
from twoshift.serve.completions import Completions
from twoshift.serve.llm.running import Running
from twoshift.serve.settings import ModelSettings, make_settings
from twoshift.types import Lane
from twoshift.wiring.backends import live_model

pytestmark = pytest.mark.slow
WAIT_S = 60.0  # against hangs
NAME = 8  # characters of a prompt that name its file


class Fleet:
    """Two replicas, behind a loop of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = FleetLlm("m")
        spec = ReplicaSpec("m", ModelSettings(model=str(folder)), open_fake_llm)
        self.supervisor = Supervisor(spec, 2, (), self.model.group, lambda _: None)
        self.model.open(self.supervisor)
        self._runner = asyncio.Runner()
        self.run(self._start)

    async def _start(self) -> None:
        self.model.start(Completions())

    def run(self, test: Callable[[], Awaitable[Any]]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(WAIT_S):
                return await test()

        return self._runner.run(bounded())

    async def begin(self, text: str, **params: Any) -> Running:
        row = GenerationRequest(text, GenerationParams(**{"max_tokens": 5, **params}))
        return await self.model.begin([row], None, time.monotonic(), lambda: None, "someone")

    async def text(self, text: str, **params: Any) -> str:
        (row,) = await (await self.begin(text, **params)).whole()
        return row["text"]

    def has(self, text: str) -> list[int]:
        """Processes that had that prompt."""
        return [int(each.suffix[1:]) for each in self.folder.glob(f"{text[:NAME]}.*")]

    async def until(self, holds: Callable[[], Any]) -> None:
        while not holds():
            await asyncio.sleep(0.01)

    async def both_ready(self) -> None:
        await self.until(lambda: self.model.replicas().ready == 2 and len(self.model.group._askable) == 2)

    def close(self) -> None:
        (self.folder / "hold").unlink(missing_ok=True)
        self.model.close()
        self._runner.close()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    made = Fleet(tmp_path_factory.mktemp("llm"))
    yield made
    made.close()


def expected(text: str, count: int = 5) -> str:
    return FakeLlm().text_of(words_after(tuple(map(ord, text)), count))


def test_either_replica_streams_and_prompts_that_begin_alike_meet_at_one(fleet: Fleet) -> None:
    shared = "s" * 600

    async def test() -> None:
        await fleet.both_ready()
        held = [await fleet.begin(f"apart-{each}-", max_tokens=500_000) for each in range(2)]
        assert {pid for each in range(2) for pid in fleet.has(f"apart-{each}-")} == {
            member.child.pid for member in fleet.supervisor.members()
        }
        for each in held:
            each.close()
        for turn in range(4):
            assert await fleet.text(f"{shared}{turn}") == expected(f"{shared}{turn}")
        assert len(fleet.has(shared)) == 1
        await fleet.until(lambda: fleet.model.sequences().lanes[Lane.ONLINE].finished >= 4)
        assert fleet.model.generated.reasons()[Lane.ONLINE]["length"] >= 4
        assert fleet.model.stats().tenants["someone"].rows >= 4

    fleet.run(test)


def test_heartbeats_feed_the_scaling_policy_with_what_live_sequences_hold(fleet: Fleet) -> None:
    async def test() -> None:
        await fleet.both_ready()
        held = await fleet.begin("k" * 2000, max_tokens=500_000)
        await fleet.until(lambda: model_counts(fleet.model, 0, 0).levels["kv_saturation"] > 0)
        held.close()
        await fleet.until(lambda: model_counts(fleet.model, 0, 0).levels["kv_saturation"] == 0)

    fleet.run(test)


def test_a_replica_that_dies_before_the_first_token_costs_nobody_an_answer(fleet: Fleet) -> None:
    async def test() -> None:
        await fleet.both_ready()
        (fleet.folder / "hold").touch()
        answer = asyncio.ensure_future(fleet.text("before-1"))
        await fleet.until(lambda: fleet.has("before-1"))
        (victim,) = fleet.has("before-1")
        os.kill(victim, signal.SIGKILL)
        (fleet.folder / "hold").unlink()
        assert await answer == expected("before-1")
        assert len(fleet.has("before-1")) == 2

    fleet.run(test)


def test_a_replica_that_dies_in_mid_stream_ends_the_stream_once_with_an_error(fleet: Fleet) -> None:
    async def test() -> None:
        await fleet.both_ready()
        running = await fleet.begin("mid-strm", max_tokens=500_000)
        (victim,) = fleet.has("mid-strm")
        os.kill(victim, signal.SIGKILL)
        got = list[tuple[int, Delta]]()

        async def read() -> None:
            async for each in running.deltas():
                got.append(each)

        with pytest.raises(TryLater, match="the replica was lost: the answer is incomplete"):
            await read()
        assert got
        assert all(delta.finish is None for _, delta in got)
        assert await fleet.text("after it") == expected("after it")
        assert fleet.model.health().healthy

    fleet.run(test)


def test_who_hangs_up_frees_the_device_of_the_replica(fleet: Fleet) -> None:
    async def test() -> None:
        await fleet.both_ready()
        running = await fleet.begin("hang up", max_tokens=500_000)
        running.close()
        await fleet.until(lambda: not any(lane.running for lane in fleet.model.sequences().lanes.values()))

    fleet.run(test)


REMOTE = "http://127.0.0.1:1/v1#m"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"replicas": 2}, "replicas: 2 "),
        ({"max_replicas": 2}, "max_replicas: 2 "),
        ({"min_replicas": 2, "max_replicas": 3}, "min_replicas: 2 "),
    ],
)
def test_a_model_on_another_server_has_one_process_here(given: dict[str, Any], said: str) -> None:
    settings = make_settings({"models": {"m": {"model": REMOTE, **given}}})
    with pytest.raises(InvalidInput, match=rf"^{said}.* expected 1: .* another server, which has replicas of its own"):
        live_model("m", settings, lambda _: None)


def test_a_model_on_another_server_is_not_asked_from_ray() -> None:
    settings = make_settings({"models": {"m": {"model": REMOTE}}, "engine": "ray"})
    with pytest.raises(InvalidInput, match=r"^engine: 'ray' .* expected local: .* another server"):
        live_model("m", settings, lambda _: None)
