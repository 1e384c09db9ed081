"""What is true of every backend of a language model: an engine in this process, child processes, replicas on Ray."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvloop")
pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq
from backends import HERE, KINDS, MARKS, MOST_WAITING, PROCESSES, RAY, Front, check_refusals, each_kind, own_ray, remote
from fake_llm import FakeLlm, words_after
from fake_llm_replica import open_fake_job, open_fake_llm

from twoshift.batch.coordinator import Ending
from twoshift.batch.job import Job
from twoshift.batch.settings import JobSettings
from twoshift.errors import TooLarge, TryLater
from twoshift.fleet.llm_model import FleetLlm
from twoshift.fleet.replica_process import ReplicaSpec
from twoshift.fleet.scaling import model_counts
from twoshift.fleet.supervisor import Supervisor
from twoshift.generation import Delta, GenerationParams, GenerationRequest
from twoshift.serve.llm.running import Running
from twoshift.serve.model_settings import ModelSettings
from twoshift.serve.scale_settings import ScaleSettings
from twoshift.types import Lane
from twoshift.wiring.blob_stores import blobs_for
from waiting import until

pytestmark = MARKS
ray_here = pytest.fixture(scope="module")(own_ray)
kind = pytest.fixture(scope="module", params=KINDS)(each_kind)
NAMED = 8  # characters of a prompt that name its file
ENDLESS = 500_000  # tokens


class Sequences(Front):
    """A front of a language model, and the folder in which its replicas say what they have."""

    def __init__(self, kind: str, backend: Any, folder: Path) -> None:
        super().__init__(kind, backend)
        self.folder, self.gate = folder, folder / "hold"  # while that is there, no replica steps

    def begin(self, *texts: str, max_tokens: int = 5, adapter: str = "") -> Future[Running]:
        """A live request, under way; there once it has its first token, where the replicas are elsewhere."""
        params = GenerationParams(max_tokens=max_tokens)
        rows = [GenerationRequest(text, params, adapter=adapter) for text in texts]
        model = self.service.language_model(self.backend.name)
        asked = self.service.generate(model, rows, None, time.monotonic())
        return asyncio.run_coroutine_threadsafe(asked, self.loop)

    def text(self, text: str, adapter: str = "") -> Future[str]:
        """The whole answer to come."""

        async def whole() -> str:
            running = await asyncio.wrap_future(self.begin(text, adapter=adapter))
            (row,) = await running.whole()
            return row["text"]

        return asyncio.run_coroutine_threadsafe(whole(), self.loop)

    def deltas(self, running: Running, got: list[tuple[int, Delta]]) -> Future[None]:
        """Everything that comes, to its end."""

        async def read() -> None:
            async for each in running.deltas():
                got.append(each)

        return asyncio.run_coroutine_threadsafe(read(), self.loop)

    def close_running(self, running: Running) -> None:
        """Nobody waits for it."""
        self.call(running.close)

    def has(self, text: str) -> list[int]:
        """Processes that had that prompt."""
        return [int(each.suffix[1:]) for each in self.folder.glob(f"{text[:NAMED]}.*")]


@contextmanager
def opened(kind: str, folder: Path, replicas: int, **scaled: Any) -> Iterator[Sequences]:
    settings = ModelSettings(
        model=str(folder), max_waiting=MOST_WAITING, replicas=replicas, threads=1, load_timeout="2m", **scaled
    )
    spec = ReplicaSpec("m", settings, open_fake_llm)
    if kind == HERE:
        backend: Any = open_fake_llm("m", settings, lambda _: None)
    else:
        backend = FleetLlm("m")
        backend.open(fleet_of(kind, spec, backend))
    front = Sequences(kind, backend, folder)
    try:
        yield front
    finally:
        front.gate.unlink(missing_ok=True)
        front.close()


def fleet_of(kind: str, spec: ReplicaSpec, backend: FleetLlm) -> Any:
    if kind == PROCESSES:
        return Supervisor(spec, spec.settings.first_replicas, (), backend.group, lambda _: None)
    from twoshift.fleet.ray_fleet import RayFleet

    return RayFleet(spec, None, backend.group, lambda _: None)


@pytest.fixture(scope="module")
def front(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequences]:
    """For tests that leave it as they found it; with two replicas where it has any."""
    with opened(kind, tmp_path_factory.mktemp(f"llm-{kind}"), 2, adapters={"sql": "adapters/sql"}) as made:
        yield made


on_ray = pytest.mark.parametrize("kind", [RAY], indirect=True, scope="module")  # which scales by itself


def expected(text: str, count: int = 5) -> str:
    return FakeLlm().text_of(words_after(tuple(map(ord, text)), count))


def ready(front: Sequences) -> None:
    """Wait until two replicas can be asked; one that was lost has been replaced."""
    if front.kind != HERE:
        until(lambda: front.backend.replicas().ready == 2 and len(front.backend.group._askable) == 2)


def test_sequences_are_streamed_by_every_replica_and_prompts_that_begin_alike_meet_at_one(front: Sequences) -> None:
    ready(front)
    names = [f"apart-{each}-" for each in range(front.replicas)]
    held = [front.begin(name, max_tokens=ENDLESS).result() for name in names]
    until(lambda: all(front.has(name) for name in names))
    assert len({pid for name in names for pid in front.has(name)}) == len(names)
    for each in held:
        front.close_running(each)
    assert any(meet_at_one(front, letter * 600) for letter in "stuvwxyz")  # a replica that stalls is left for another
    running, got = front.begin("abc", "xyz").result(), list[tuple[int, Delta]]()
    front.deltas(running, got).result()
    for place, text in enumerate(("abc", "xyz")):
        assert "".join(delta.text for at, delta in got if at == place) == expected(text)
    assert len(got) >= 4  # token by token
    assert running.tokens == 6


def meet_at_one(front: Sequences, shared: str) -> bool:
    """Whether four prompts that begin so were all read by one replica."""
    for turn in range(4):
        assert front.text(f"{shared}{turn}").result() == expected(f"{shared}{turn}")
    return len(front.has(shared)) == 1


def test_replicas_have_the_adapters_and_a_prompt_goes_with_the_one_that_it_is_for(front: Sequences) -> None:
    ready(front)
    assert [*front.backend.info.adapters] == ["sql"]
    assert front.text("abc", adapter="sql").result() == expected("sqlabc") != expected("abc")
    assert front.text("abc").result() == expected("abc")


def test_it_counts_what_it_has_done_by_sequences_and_tenants(front: Sequences) -> None:
    ready(front)
    before = front.backend.sequences().lanes[Lane.ONLINE].finished
    for turn in range(4):
        front.text(f"count {turn}").result()
    until(lambda: front.backend.sequences().lanes[Lane.ONLINE].finished >= before + 4)
    until(lambda: front.backend.generated.reasons()[Lane.ONLINE]["length"] >= 4)
    until(lambda: front.backend.stats().lanes[Lane.ONLINE].rows >= 4)
    health = front.backend.health()
    assert (health.healthy, health.reason) == (True, "")
    assert front.backend.most_rows == MOST_WAITING
    assert front.backend.derived_now().output_tokens_per_s > 0


def test_what_can_never_be_answered_is_refused_by_name(front: Sequences) -> None:
    with pytest.raises(TooLarge, match="9 answers"):
        front.begin(*["a"] * (MOST_WAITING + 1)).result()
    with pytest.raises(TooLarge, match="prompt"):
        front.begin("a" * (1 << 20)).result()
    assert front.text("fine").result() == expected("fine")


def test_overload_is_refused_with_a_time_and_what_was_admitted_is_answered(front: Sequences) -> None:
    ready(front)
    front.gate.touch()
    try:
        asked = [front.text(f"over {each}") for each in range(MOST_WAITING * front.replicas + 8)]
        until(lambda: sum(each.done() for each in asked) >= 8)
    finally:
        front.gate.unlink()
    check_refusals(asked)
    answers = {place: each.result() for place, each in enumerate(asked) if each.exception() is None}
    assert all(answer == expected(f"over {place}") for place, answer in answers.items())


def test_who_hangs_up_frees_the_device(front: Sequences) -> None:
    running = front.begin("hang up", max_tokens=ENDLESS).result()
    until(lambda: model_counts(front.backend, 0, 0).levels["kv_saturation"] > 0)
    front.close_running(running)
    until(lambda: not any(lane.running for lane in front.backend.sequences().lanes.values()))
    assert front.text("go on").result() == expected("go on")
    until(lambda: model_counts(front.backend, 0, 0).levels["kv_saturation"] == 0)


def prompts(folder: Path, **more: Any) -> tuple[list[str], JobSettings]:
    """A job over a few prompts."""
    texts = [f"w{k}" for k in range(40)]
    pq.write_table(pa.table({"id": range(len(texts)), "text": texts}), folder / "in.parquet")
    settings = JobSettings(
        inputs=(str(folder / "in.parquet"),), output=str(folder / "out"), model="m", prompt="{text}",
        max_tokens=5, keep=("id",), shard_rows=8, **more,
    )  # fmt: skip
    return texts, settings


def answered(folder: Path) -> list[str]:
    """By row, whatever shard it was in."""
    return pq.read_table(folder / "out").sort_by("id")["text"].to_pylist()


def test_a_job_in_its_batch_lanes_answers_as_live_requests_are_answered(front: Sequences, tmp_path: Path) -> None:
    texts, settings = prompts(tmp_path)
    lane = front.run_job(settings)
    assert answered(tmp_path) == [expected(text) for text in texts]
    until(lambda: lane.used().rows >= len(texts))


@on_ray
def test_a_job_on_workers_of_ray_answers_alike(kind: str, tmp_path: Path) -> None:
    from twoshift.batch.ray_pool import RayPool

    texts, settings = prompts(tmp_path, engine=kind, threads=1)
    job = Job(settings, blobs_for, RayPool(settings, open_fake_job, blobs_for))
    assert job.run(lambda _: None, lambda _: None).ending is Ending.DONE
    assert answered(tmp_path) == [expected(text) for text in texts]


def test_a_server_that_drains_answers_what_it_has_and_takes_nothing_new(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path, 1) as front:
        front.gate.touch()
        waiting = front.text("waiting")
        until(lambda: front.has("waiting"))
        front.call(front.service.drain)
        with pytest.raises(TryLater, match="shutting down"):
            front.begin("late").result()
        assert not waiting.done()
        front.gate.unlink()
        assert waiting.result() == expected("waiting")


@remote
def test_a_replica_that_dies_before_the_first_token_costs_nobody_an_answer(front: Sequences) -> None:
    ready(front)
    front.gate.touch()
    answer = front.text("before-1")
    until(lambda: front.has("before-1"))
    (victim,) = front.has("before-1")
    os.kill(victim, signal.SIGKILL)
    front.gate.unlink()
    assert answer.result() == expected("before-1")
    assert len(front.has("before-1")) == 2


@remote
def test_a_replica_that_dies_in_mid_stream_ends_the_stream_once_with_an_error(front: Sequences) -> None:
    ready(front)
    running = front.begin("mid-strm", max_tokens=ENDLESS).result()
    (victim,) = front.has("mid-strm")
    os.kill(victim, signal.SIGKILL)
    got = list[tuple[int, Delta]]()
    with pytest.raises(TryLater, match="the replica was lost: the answer is incomplete"):
        front.deltas(running, got).result()
    assert got
    assert all(delta.finish is None for _, delta in got)
    assert front.text("after it").result() == expected("after it")
    assert front.backend.health().healthy
    ready(front)


@on_ray
@pytest.mark.filterwarnings("ignore:The `metrics_interval_s` field:DeprecationWarning")
def test_ray_adds_a_replica_by_waiting_requests_and_by_kv_use_and_one_that_goes_finishes_its_stream(
    kind: str, tmp_path: Path
) -> None:
    scale = ScaleSettings(every="500ms", cooldown="1s", waiting_per_replica=2, longest_wait="1h", kv_mark=1e-4)
    with opened(kind, tmp_path, 1, max_replicas=2, scale=scale) as front:
        front.gate.touch()
        asked = [front.text(f"w{each}") for each in range(6)]
        until(lambda: front.backend.replicas().ready == len(front.backend.group._askable) == 2)
        front.gate.unlink()
        assert [each.result() for each in asked] == [expected(f"w{each}") for each in range(6)]

        streams = [front.begin(f"stays {each}", max_tokens=200).result() for each in range(2)]
        front.gate.touch()
        until(lambda: front.backend.replicas().ready == 1)
        front.gate.unlink()
        for place, each in enumerate(streams):
            got = list[tuple[int, Delta]]()
            front.deltas(each, got).result()
            assert "".join(delta.text for _, delta in got) == expected(f"stays {place}", 200)

        large = front.begin("k" * 2000, max_tokens=ENDLESS).result()
        until(lambda: front.backend.replicas().ready == 2)
        front.close_running(large)
