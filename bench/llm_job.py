"""Output tokens a second of a job against vLLM's own `LLM.generate` over the same prompts, in the same run.

    python bench/llm_job.py --rows 64 --max-tokens 32 --rounds 1

Both run in this process, one after the other and in turns: a job's engine with its governor, and plain vLLM.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from vllm import LLM, SamplingParams

from twoshift.engine.llm import LlmEngine
from twoshift.generation import GenerationParams, GenerationRequest, Message
from twoshift.llm_ports import Prompts
from twoshift.policy.cost import CallCost
from twoshift.ports import RuntimeInfo
from twoshift.runtime.llm import LlmOptions, llm_folder
from twoshift.runtime.llm.vllm_runtime import VllmRuntime, engine_arguments

_PREAMBLE = "You are an assistant who answers in one sentence. "


def main() -> None:
    """One line of JSON a side and round, and the ratio of the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cuda", action="store_true")
    given = parser.parse_args()
    folder = llm_folder(given.model)
    llm = LLM(**engine_arguments(folder, LlmOptions(), given.cuda, "bf16" if given.cuda else "fp32"))
    runtime = VllmRuntime(llm.llm_engine, folder, RuntimeInfo(given.model, "", "vllm", "", "", 0, ("text",), True))
    params = GenerationParams(temperature=0.0, max_tokens=given.max_tokens, ignore_eos=True)
    turns = [(Message("system", _PREAMBLE), Message("user", f"Say something of {k}.")) for k in range(given.rows)]
    rows = runtime.prepare([GenerationRequest(each, params) for each in turns])
    rates: dict[str, list[float]] = {"vllm": [], "twoshift": []}
    thread = ThreadPoolExecutor(1)  # for both sides alike: steps may take longer in the main thread
    for number in range(given.rounds + 1):  # the first is to warm up
        for side in rates:
            llm.reset_prefix_cache()
            began_s = time.perf_counter()
            tokens = thread.submit(_plain, llm, rows).result() if side == "vllm" else _governed(runtime, rows)
            rate = tokens / (time.perf_counter() - began_s)
            if number:
                rates[side].append(rate)
                print(json.dumps({"side": side, "round": number, "tokens": tokens, "tokens_per_s": round(rate, 1)}))
    medians = {side: statistics.median(each) for side, each in rates.items()}
    print(json.dumps({"tokens_per_s": medians, "ratio": round(medians["twoshift"] / medians["vllm"], 3)}))
    runtime.close()


def _governed(runtime: VllmRuntime, rows: Prompts) -> int:
    """As a job's worker runs them."""
    engine = LlmEngine(runtime, CallCost.line(0.02, 0.001), serves=False)
    try:
        return engine.submit_block(rows).result().output_tokens
    finally:
        engine.drain()


def _plain(llm: LLM, rows: Prompts) -> int:
    limits = SamplingParams(temperature=0.0, max_tokens=rows.prompts[0].max_tokens, ignore_eos=True)
    prompts: list[Any] = [{"prompt_token_ids": list(each.token_ids)} for each in rows.prompts]
    return sum(len(each.outputs[0].token_ids) for each in llm.generate(prompts, limits, use_tqdm=False))


if __name__ == "__main__":
    main()
