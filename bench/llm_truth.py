"""What Twoshift predicts of a language model against what is then measured: the goal is within 15 %.

    python bench/llm_truth.py
    python bench/llm_truth.py --cuda --model FOLDER

A server is started: `/v1/derived` tells the output tokens a second of a typical request, before the first one; then as
many clients as it says ask for such requests in a closed loop, first streamed, then whole. `plan tokens --profile` is
asked about the same requests and as many sequences. A job (`twoshift.run`) says when it will end as soon as it can.
Prompts are random and share no beginning, so each is read; prompts and answers are half as long to half as long again
as the typical ones.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _load import Plan, post, run_load
from _overload_cells import Served
from _overload_server import Server
from _servers import environment, first_reply, forget_profiles, free_port, running

GOAL = 0.15
_READY_S = 420.0
_CPU_OBJECTIVES = ["--ttft-ms", "30000", "--tpot-ms", "200"]  # some sequences, each of which ends within the time
_TOKENS = re.compile(r"^vllm:generation_tokens_total\{[^}]*\} (\S+)$", re.MULTILINE)
_FIRST_ID, _IDS = 1_000, 20_000  # tokens that are nothing special


@dataclass(frozen=True, slots=True)
class Compared:
    """A prediction and what came."""

    what: str
    predicted: float
    measured: float
    unit: str

    @property
    def is_met(self) -> bool:
        return abs(self.predicted / self.measured - 1) <= GOAL

    def __str__(self) -> str:
        verdict = "met" if self.is_met else "MISSED"
        off = f"{self.predicted / self.measured - 1:+.1%}"
        return f"{self.what:44} {self.predicted:10,.1f} {self.measured:10,.1f} {self.unit:9} {off:>7}  {verdict}"


def main() -> int:
    """Prints a line for each; 1 where one is missed."""
    given = _arguments()
    if given.only_job:
        print(json.dumps(_run_job(given)))
        return 0
    forget_profiles()
    print(f"{'':44} {'predicted':>10} {'measured':>10}", flush=True)
    found = list[Compared]()
    for each in itertools.chain(_served(given), () if given.without_job else _job(given)):
        print(each, flush=True)
        found.append(each)
    return int(not all(each.is_met for each in found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--seconds", type=float, help="of the closed loop (default: 20, 60 on a CPU)")
    parser.add_argument("--rows", type=int, help="of the job (default: 3072, 192 on a CPU)")
    parser.add_argument("--without-job", action="store_true", help="the server alone: the model is loaded once")
    parser.add_argument("--only-job", action="store_true", help="its first ETA and what it took, as JSON")
    given = parser.parse_args()
    given.seconds = given.seconds or (20.0 if given.cuda else 60.0)
    given.rows = given.rows or (3072 if given.cuda else 192)
    return given


def _served(given: argparse.Namespace) -> list[Compared]:
    port = free_port()
    words = [sys.executable, "-m", "twoshift", "serve", given.model, "--name", "served", "--port", str(port)]
    words += ["--device", "cuda", "--ttft-ms", "1000", "--tpot-ms", "100"] if given.cuda else _CPU_OBJECTIVES
    with running("llm truth", words) as pid:
        first_reply("llm truth", pid, port, _request(random.Random(0), 16, 1), _READY_S)  # noqa: S311
        server = Server(Served("llm", 0.0, 1), port, pid, Path())
        told: dict[str, Any] = server.get("/v1/derived/served")
        many, prompt, answer = (
            int(told[key]) for key in ("live_streams", "request_prompt_tokens", "request_answer_tokens")
        )
        # First those that stream: the profile that is kept at the end is of what the last clients cost
        streamed_per_s, streaming = _streamed(server, port, many, (prompt, answer), given.seconds)
        rng = random.Random(1)  # noqa: S311 - the same requests in every run
        requests = [_request(rng, _about(rng, prompt), _about(rng, answer)) for _ in range(16 * many)]
        warm_s = given.seconds / 2
        plan = Plan(port=port, requests=requests, clients=many, seconds=given.seconds, warm_s=warm_s)
        load = threading.Thread(target=run_load, args=(plan,))
        load.start()
        time.sleep(warm_s)
        tokens, began_s = _generated(server), time.perf_counter()
        time.sleep(given.seconds)
        per_s = (_generated(server) - tokens) / (time.perf_counter() - began_s)
        now = server.get("/v1/derived/served")
        load.join()
    asked = f"{many} x ({prompt} in, {answer} out)"
    lines = [
        Compared(f"/v1/derived, {asked}, at start", told["output_tokens_per_s"], per_s, "tokens/s"),
        Compared("/v1/derived, while it serves them", now["output_tokens_per_s"], per_s, "tokens/s"),
        Compared("/v1/derived, streamed, at start", told["streamed_tokens_per_s"], streamed_per_s, "tokens/s"),
        Compared("/v1/derived, while it streams", streaming["output_tokens_per_s"], streamed_per_s, "tokens/s"),
    ]
    planned = ["plan", "tokens", "--profile", given.model, "--price", "1", "--sequences", str(many), "--json"]
    planned += ["--prompt-tokens", str(prompt), "--answer-tokens", str(answer)]
    done = subprocess.run(
        [sys.executable, "-m", "twoshift", *planned], env=environment({}), capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [*lines, Compared("plan tokens --profile", json.loads(done.stdout)["tokens_per_s"], per_s, "tokens/s")]


def _streamed(
    server: Server, port: int, clients: int, size: tuple[int, int], seconds: float
) -> tuple[float, dict[str, Any]]:
    """Tokens a second of as many clients that stream, and what is told then."""
    rng, warm_s = random.Random(3), seconds / 2  # noqa: S311
    bodies = [json.dumps(_asked(rng, *(_about(rng, each) for each in size), stream=True)) for _ in range(8 * clients)]
    asked = {"port": port, "clients": clients, "seconds": warm_s + seconds + 2.0, "bodies": bodies}
    script = str(Path(__file__).with_name("_stream_clients.py"))
    with subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE) as load:
        assert load.stdin is not None
        load.stdin.write(json.dumps(asked).encode())
        load.stdin.close()
        time.sleep(warm_s)
        tokens, began_s = _generated(server), time.perf_counter()
        time.sleep(seconds)
        per_s = (_generated(server) - tokens) / (time.perf_counter() - began_s)
        now: dict[str, Any] = server.get("/v1/derived/served")
    return per_s, now


def _about(rng: random.Random, tokens: int) -> int:
    return rng.randint(tokens // 2, tokens + tokens // 2)


def _asked(rng: random.Random, prompt: int, answer: int, stream: bool = False) -> dict[str, Any]:
    ids = [rng.randint(_FIRST_ID, _IDS) for _ in range(prompt)]
    body = {"model": "served", "prompt": ids, "max_tokens": answer, "temperature": 0, "ignore_eos": True}
    return {**body, "stream": stream}


def _request(rng: random.Random, prompt: int, answer: int) -> bytes:
    return post("/v1/completions", json.dumps(_asked(rng, prompt, answer)).encode())


def _generated(server: Server) -> float:
    return sum(map(float, _TOKENS.findall(server.get("/metrics"))))


def _job(given: argparse.Namespace) -> list[Compared]:
    """In a process of its own, as `serve` is."""
    words = [sys.executable, *sys.argv, "--rows", str(given.rows), "--only-job"]
    done = subprocess.run(words, env=environment({}), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(found), file=sys.stderr)
    return [Compared(f"the first ETA of a job of {given.rows:,} rows", found["eta_s"], found["took_s"], "s")]


def _run_job(given: argparse.Namespace) -> dict[str, Any]:
    """Seconds as first predicted, and as they were; how it went."""
    import twoshift

    rng, seen = random.Random(2), list[tuple[float, float, int]]()  # noqa: S311 - when, until when, rows
    rows, began_s = given.rows, time.monotonic()

    def told(now: Any) -> None:
        if now.outlook.eta_s is not None:
            seen.append((time.monotonic(), now.outlook.eta_s, now.rows))

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prompts.jsonl"
        with path.open("w") as file:
            for _ in range(rows):
                words = " ".join(f"{rng.randint(100, 999)}" for _ in range(_about(rng, 60)))
                file.write(json.dumps({"prompt": words}) + "\n")
        job = twoshift.run(
            str(path), model=given.model, output=f"{folder}/out", prompt="prompt", max_tokens=128,
            device="cuda" if given.cuda else "cpu", on_progress=told,
        )  # fmt: skip
        summary = job.wait().summary
    ended_s = time.monotonic()
    assert summary is not None
    scored_s = next((at_s for at_s, _, done in seen if done >= rows), ended_s)
    return {
        "eta_s": seen[0][1] - seen[0][0],
        "took_s": ended_s - seen[0][0],
        "whole_s": ended_s - began_s,  # with the model's loading
        "after_last_row_s": ended_s - scored_s,
        "output_tokens_per_s": summary.output_tokens / (ended_s - seen[0][0]),
        "input_tokens": summary.tokens,
        "seen": [[round(each - seen[0][0], 2) for each in (at_s, eta_s)] + [done] for at_s, eta_s, done in seen],
    }


if __name__ == "__main__":
    sys.exit(main())
