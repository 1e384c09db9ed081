"""Twoshift's engine and plain vLLM, each in a process of its own, behind one face."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import os
import queue
import sys
import threading
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from _llm_traffic import Ask, Got, Phase, closed_loop, run_phase

_ALONE = 3  # requests one after the other, to see what one alone takes
_LOAD_S, _PHASE_S = 240.0, 240.0  # after which a process is given up
_MEASURE_S = 8.0
_ENVIRONMENT = {  # as Twoshift sets it for its own, for all
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "GOMP_SPINCOUNT": "10000",
    "HF_HUB_OFFLINE": "1",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """The same for every way."""

    model: str
    precision: str
    sequences: int
    step_tokens: int
    job_prompts: int
    job_clients: int  # requests of the job inside plain vLLM at once
    device: str = "cpu"

    def options(self) -> Any:
        from twoshift.runtime.llm import LlmOptions

        return LlmOptions(self.device, self.precision, max_sequences=self.sequences, step_tokens=self.step_tokens)


class OurEngine:
    """Twoshift: live streams, and a block of the job's rows, as the governor lets them in."""

    def __init__(self, setting: Setting, say: Callable[[str], None]) -> None:
        from twoshift.engine.llm.measure import measure_steps
        from twoshift.policy.step_fit import fit_step_cost
        from twoshift.runtime.llm import load_llm

        self._runtime = load_llm(setting.model, setting.options())
        say("measuring its steps")
        self.cost = fit_step_cost([each.sample for each in measure_steps(self._runtime, _MEASURE_S)]).cost
        say(f"curve: {self.cost.shape}, one sequence {1e3 * self._step_s(1):.0f} ms, "
            f"{setting.sequences} {1e3 * self._step_s(setting.sequences):.0f} ms")  # fmt: skip
        self._engine: Any = None
        self._job: Any = None
        self._seen = _Steps(self._runtime)

    def _step_s(self, rows: int) -> float:
        from twoshift.types import CallSize

        return self.cost.seconds(CallSize.uniform(rows))

    def promise(self, ttft_s: float, tpot_s: float, live_slowdown: float | None) -> None:
        """The objectives; from here on it answers."""
        from twoshift.engine.llm import LlmEngine, LlmObjective

        if self._engine is not None:
            self._engine.drain()
        objective = LlmObjective(ttft_s=ttft_s, tpot_s=tpot_s, live_slowdown=live_slowdown)
        self._engine = LlmEngine(self._runtime, self.cost, objective)
        self._seen.watch(self._engine)

    async def ask(self, ask: Ask) -> AsyncIterator[int]:
        async for delta in self._engine.stream(self._prompt(ask)):
            yield len(delta.token_ids)

    def start_job(self, asks: Sequence[Ask], priorities: bool) -> None:
        from twoshift.llm_ports import Prompts

        self._job = self._engine.submit_block(Prompts(tuple(map(self._prompt, asks))))

    def job_done(self) -> tuple[int, int]:
        from twoshift.types import Lane

        lane = self._engine.sequences().lanes[Lane.BATCH]
        return lane.finished, lane.output_tokens

    async def stop_job(self) -> None:
        from twoshift.types import Lane

        self._job.cancel()
        while self._engine.sequences().lanes[Lane.BATCH].running:
            await asyncio.sleep(0.05)

    def close(self) -> None:
        """Its process ends."""

    def notes(self) -> str:
        stats = self._engine.sequences()
        return f"taken out {stats.requeued}, read again {stats.reread_tokens:,} tokens; {self._seen.told()}"

    def _prompt(self, ask: Ask) -> Any:
        from twoshift.generation import GenerationParams
        from twoshift.llm_ports import Prompt

        return Prompt(ask.token_ids, GenerationParams(temperature=0.0, ignore_eos=True), ask.new_tokens)


class _Steps:
    """What the steps of an engine were like, and what its governor said, since this was last told."""

    def __init__(self, runtime: Any) -> None:
        self._step, self._engine = runtime.step, None
        runtime.step = self._stepped
        self._forget()

    def watch(self, engine: Any) -> None:
        self._engine = engine

    def _forget(self) -> None:
        self._took: dict[bool, list[tuple[float, int, float]]] = {False: [], True: []}  # by whether prompts were read
        self._why: Counter[str] = Counter()

    def _stepped(self, prefill_tokens: int | None = None) -> Any:
        step = self._step(prefill_tokens)
        if step.seconds is not None and self._engine is not None:
            predicted_s = self._engine.curves.seconds(step.size)
            read = sum(each for each in step.tokens.values() if each > 1)
            self._took[read > 0].append((step.seconds, read or step.size.rows, predicted_s))
            self._why[self._engine._counters.why] += 1  # `sequences()` counts all that wait
        return step

    def told(self) -> str:
        lines = list[str]()
        for reads, took in self._took.items():
            if took:
                ms, size, said = (1e3 * sum(each[at] for each in took) / len(took) for at in (0, 1, 2))
                kind = f"read {size / 1e3:.0f} tokens" if reads else f"only decode {size / 1e3:.0f}"
                lines.append(f"{len(took)} steps {kind}, {ms:.1f} ms each ({said:.1f} predicted)")
        lines += [f"{count} x {why}" for why, count in self._why.most_common(3)]
        self._forget()
        return "; ".join(lines)


class _Vllm:
    """A job keeps a number of requests inside. Where all have the same priority it is first come, first served."""

    def __init__(self, setting: Setting) -> None:
        self._job_clients, self._ids = setting.job_clients, itertools.count()
        self._done = self._tokens = 0
        self._clients: list[asyncio.Task[None]] = []

    def promise(self, ttft_s: float, tpot_s: float, live_slowdown: float | None) -> None:
        """It knows no objectives."""

    def ask(self, ask: Ask) -> AsyncIterator[int]:
        return self._generated(ask, 0)

    def start_job(self, asks: Sequence[Ask], priorities: bool) -> None:
        waiting = list(reversed(asks))
        self._clients = [
            asyncio.ensure_future(self._client(waiting, int(priorities))) for _ in range(self._job_clients)
        ]

    def job_done(self) -> tuple[int, int]:
        return self._done, self._tokens

    async def stop_job(self) -> None:
        for each in self._clients:
            each.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        await asyncio.sleep(1.0)  # its core hears of it between two steps

    def notes(self) -> str:
        return ""

    def close(self) -> None:
        """Its process ends."""

    async def _client(self, waiting: list[Ask], priority: int) -> None:
        while waiting:
            async for tokens in self._generated(waiting.pop(), priority):
                self._tokens += tokens
            self._done += 1

    def _generated(self, ask: Ask, priority: int) -> AsyncIterator[int]:
        raise NotImplementedError


class SteppedVllm(_Vllm):
    """vLLM's engine, stepped in a thread as fast as it goes: the same core in the same place as Twoshift's."""

    def __init__(self, setting: Setting, say: Callable[[str], None]) -> None:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        from vllm import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        super().__init__(setting)
        self._engine: Any = LLMEngine.from_engine_args(EngineArgs(**_arguments(setting)))
        self._inbox: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._readers: dict[str, Callable[[int, bool], object]] = {}
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            while True:
                while not self._inbox.empty() or not self._engine.has_unfinished_requests():
                    self._inbox.get()()
                for output in self._engine.step():
                    if reader := self._readers.get(output.request_id):
                        reader(len(output.outputs[0].token_ids), output.finished)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    async def _generated(self, ask: Ask, priority: int) -> AsyncIterator[int]:
        loop, came, name = asyncio.get_running_loop(), asyncio.Queue[tuple[int, bool]](), str(next(self._ids))
        self._readers[name] = lambda tokens, over: loop.call_soon_threadsafe(came.put_nowait, (tokens, over))
        prompt, params, over = _prompt(ask), _params(ask), False
        self._inbox.put(lambda: self._engine.add_request(name, prompt, params, priority=priority))
        try:
            while not over:
                tokens, over = await came.get()
                if tokens:
                    yield tokens
        finally:
            del self._readers[name]
            if not over:
                self._inbox.put(lambda: self._engine.abort_request([name]))


class AsyncVllm(_Vllm):
    """vLLM's asynchronous engine, its core in one more process, as its server runs it."""

    def __init__(self, setting: Setting, say: Callable[[str], None]) -> None:
        os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        super().__init__(setting)
        arguments = _arguments(setting)
        del arguments["async_scheduling"]  # as it thinks best
        self._engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))

    async def _generated(self, ask: Ask, priority: int) -> AsyncIterator[int]:
        name = str(next(self._ids))
        async for output in self._engine.generate(_prompt(ask), _params(ask), name, priority=priority):
            if tokens := len(output.outputs[0].token_ids):
                yield tokens

    def close(self) -> None:
        self._engine.shutdown()


def _arguments(setting: Setting) -> dict[str, Any]:
    from twoshift.runtime.llm import llm_folder
    from twoshift.runtime.llm.vllm_runtime import engine_arguments

    return engine_arguments(llm_folder(setting.model), setting.options(), setting.device == "cuda", setting.precision)


def _prompt(ask: Ask) -> Any:
    return {"prompt_token_ids": list(ask.token_ids)}


def _params(ask: Ask) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    kind = RequestOutputKind.DELTA
    return SamplingParams(temperature=0.0, max_tokens=ask.new_tokens, ignore_eos=True, output_kind=kind)


@dataclass(frozen=True, slots=True)
class Calibrate:
    """What one request alone takes, and how many a second the engine can answer."""

    clients: int


@dataclass(frozen=True, slots=True)
class Calibrated:
    ttft_s: float
    tpot_s: float
    per_s: float


class Apart:
    """A way in a process of its own; raises RuntimeError with what went wrong there."""

    def __init__(self, name: str, made: type[Any], setting: Setting) -> None:
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._end, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, made, setting))
        self._process.start()
        theirs.close()

    def loaded(self) -> None:
        self._answer(_LOAD_S)

    def calibrated(self, clients: int) -> Calibrated:
        return self._told(Calibrate(clients))

    def promise(self, ttft_s: float, tpot_s: float, live_slowdown: float | None) -> None:
        self._told((ttft_s, tpot_s, live_slowdown))

    def phase(self, phase: Phase) -> Got:
        return self._told(phase)

    def close(self) -> None:
        if self._process.is_alive():
            with contextlib.suppress(OSError):
                self._end.send(None)
            self._process.join(20)
            self._process.kill()
        self._process.join()

    def _told(self, what: Any) -> Any:
        self._end.send(what)
        return self._answer(_PHASE_S + getattr(what, "seconds", 0.0))

    def _answer(self, limit_s: float) -> Any:
        while self._end.poll(limit_s):
            try:
                kind, value = self._end.recv()
            except EOFError:
                break
            if kind == "said":
                print(f"   {self.name}: {value}", flush=True)
            elif kind == "failed":
                raise RuntimeError(f"{self.name}: {value}")
            else:
                return value
        raise RuntimeError(f"{self.name}: its process ended, or said nothing for {limit_s:g} s")


def _serve(end: Connection, made: type[Any], setting: Setting) -> None:
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the table alone is printed
    for key, value in _ENVIRONMENT.items():
        os.environ.setdefault(key, value)
    try:
        asyncio.run(_served(end, made, setting))
    except BaseException:
        end.send(("failed", traceback.format_exc()))
    os._exit(0)  # the model's threads would have to be waited for


async def _served(end: Connection, made: type[Any], setting: Setting) -> None:
    def say(text: str) -> None:
        end.send(("said", text))

    way = made(setting, say)
    end.send(("done", None))
    while (what := await asyncio.to_thread(end.recv)) is not None:
        if isinstance(what, Calibrate):
            end.send(("done", await _calibrated(way, what.clients)))
        elif isinstance(what, Phase):
            end.send(("done", await run_phase(way, what, setting.job_prompts, say)))
        else:
            way.promise(*what)
            end.send(("done", None))
    way.close()


async def _calibrated(way: Any, clients: int) -> Calibrated:
    import numpy as np

    first = Phase(0, 10**6, 60.0, rate=(_ALONE + 3 * clients) / 40).live()
    await closed_loop(way, first[:1], 1)  # what happens only the first time
    _, alone = await closed_loop(way, first[1 : 1 + _ALONE], 1)
    many = first[1 + _ALONE : 1 + _ALONE + 2 * clients]
    seconds, _ = await closed_loop(way, many, clients)
    return Calibrated(float(np.median(alone.ttft_s)), float(np.median(alone.tpot_s)), len(many) / seconds)
