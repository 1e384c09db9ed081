"""Output tokens a second of a job against vLLM's own `LLM.generate` with its defaults, over the same prompts.

    python bench/llm_job.py
    python bench/llm_job.py --cuda --model FOLDER --rows 2048 --prompt-tokens 249 --max-tokens 128

Each side loads the model in a process of its own, answers some prompts to warm up, and then `--rounds` times; the
sides take turns. vLLM has its own choice of core process, scheduler and step size; the number of sequences, the context
and the precision are the same for both. Prompts are random tokens that share no beginning.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
from _spy import spied

_ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "GOMP_SPINCOUNT": "10000",
    "HF_HUB_OFFLINE": "1",
}
GOAL = 0.95
_SIDES = ("vllm", "twoshift")


def main() -> int:
    """Prints a line a round, then the medians."""
    given = _arguments()
    rates: dict[str, list[float]] = {side: [] for side in given.sides}
    context = multiprocessing.get_context("spawn")
    for turn in range(given.turns):
        for side in rates:
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_side, args=(side, given, theirs))
            process.start()
            theirs.close()
            for told in _told(process, ours):
                rates[side].append(told["tokens_per_s"])
                print(json.dumps({"side": side, "turn": turn + 1, **told}), flush=True)
    if not all(rates.values()) or len(rates) < len(_SIDES):
        return 1
    medians = {side: round(statistics.median(each), 1) for side, each in rates.items()}
    ratio = medians["twoshift"] / medians["vllm"]
    verdict = "met" if ratio >= GOAL else "MISSED"
    print(json.dumps({"tokens_per_s": medians, "ratio": round(ratio, 3), "goal": GOAL, "verdict": verdict}))
    return int(ratio < GOAL)


def _told(process: BaseProcess, results: Connection) -> Iterator[dict[str, Any]]:
    """What a side tells until it ends; its own children may hold the other end of the pipe for longer."""
    with contextlib.suppress(EOFError):
        while process.is_alive() or results.poll():
            if results.poll(1.0):
                yield results.recv()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--sequences", type=int, help="as many as Twoshift holds by default, without it")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--sides", nargs="+", choices=_SIDES, default=_SIDES)
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--spy", type=Path, metavar="FOLDER", help="write Twoshift's stacks there (slower)")
    return parser.parse_args()


def _side(side: str, given: argparse.Namespace, results: Any) -> None:
    for key, value in _ENVIRONMENT.items():
        os.environ.setdefault(key, value)
    run, vocabulary, close = (_vllm if side == "vllm" else _twoshift)(given)
    rng = np.random.default_rng(7)
    for number in range(given.rounds + 1):
        count = given.rows if number else max(1, given.rows // 8)
        rows = rng.integers(vocabulary, size=(count, given.prompt_tokens)).tolist()
        spy_folder = given.spy if number and side == "twoshift" else None
        with spied(os.getpid(), spy_folder, f"llm_job{number}"):
            began_s = time.perf_counter()
            tokens = run(rows)
            seconds = time.perf_counter() - began_s
        if number:  # the first is to warm up
            results.send({"tokens": tokens, "seconds": round(seconds, 2), "tokens_per_s": round(tokens / seconds, 1)})
    close()
    os._exit(0)  # the model's threads would have to be waited for


def _shared(given: argparse.Namespace) -> dict[str, Any]:
    """vLLM's arguments that are the same for both."""
    from twoshift.runtime.llm import LlmOptions, llm_folder
    from twoshift.runtime.llm.vllm_runtime import engine_arguments

    options = LlmOptions(max_sequences=given.sequences)
    whole = engine_arguments(llm_folder(given.model), options, given.cuda, "bf16" if given.cuda else "fp32")
    return {name: whole[name] for name in ("model", "max_model_len", "dtype", "max_num_seqs", "kv_cache_memory_bytes")}


def _vllm(given: argparse.Namespace) -> tuple[Callable[[list[list[int]]], int], int, Callable[[], None]]:
    if not given.cuda:
        os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))
    from vllm import LLM, SamplingParams

    llm = LLM(**_shared(given))
    limits = SamplingParams(temperature=0.0, max_tokens=given.max_tokens, ignore_eos=True)

    def run(rows: list[list[int]]) -> int:
        prompts: list[Any] = [{"prompt_token_ids": each} for each in rows]
        return sum(len(each.outputs[0].token_ids) for each in llm.generate(prompts, limits, use_tqdm=False))

    return run, llm.llm_engine.model_config.get_vocab_size(), llm.llm_engine.engine_core.shutdown


def _twoshift(given: argparse.Namespace) -> tuple[Callable[[list[list[int]]], int], int, Callable[[], None]]:
    from twoshift.engine.llm import LlmEngine
    from twoshift.generation import GenerationParams
    from twoshift.llm_ports import Prompt, Prompts
    from twoshift.policy.cost import CallCost
    from twoshift.runtime.llm import LlmOptions, load_llm

    device, precision = ("cuda", "bf16") if given.cuda else ("cpu", "fp32")
    runtime = load_llm(given.model, LlmOptions(device, precision, max_sequences=given.sequences))
    engine = LlmEngine(runtime, CallCost.line(0.02, 0.001), serves=False)
    params = GenerationParams(temperature=0.0, max_tokens=given.max_tokens, ignore_eos=True)
    prompt = partial(Prompt, params=params, max_tokens=given.max_tokens)

    def run(rows: list[list[int]]) -> int:
        return engine.submit_block(Prompts(tuple(prompt(tuple(each)) for each in rows))).result().output_tokens

    return run, runtime.shape.vocabulary or 0, lambda: None


if __name__ == "__main__":
    raise SystemExit(main())
