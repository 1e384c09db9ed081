"""Live streams and a job on one language model: Twoshift's governor, plain vLLM, and vLLM's own priorities.

    python bench/llm_colocate.py

One model (SmolLM2-135M on vLLM), one set of engine settings, the same live requests by the clock and the same prompts
of the job, all in one run and in turns, each engine in a process of its own that rests while another is measured. Time
to the first token counts from the scheduled arrival; TPOT is a request's mean over its tokens after the first, a gap is
the time between two of them. Live requests come at a share of what the engine can answer; the objectives are multiples
of what a request takes that is alone, measured before, unless they are given. Plain vLLM is stepped in a thread, as
Twoshift steps it; `--vllm async` is its asynchronous engine, with its core in one more process.

    python bench/llm_colocate.py --cuda --model FOLDER

On a GPU Twoshift alone is measured, with 8 and 24 streams a second, prompts of about 249 tokens and answers of 128,
and objectives of 500 and 40 ms. Goals: the objectives are kept at p99, and job and streams together have 0.9 of the
output tokens of the job alone. `--live-slowdown 1.05` measures a further line with that bound.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from _llm_traffic import Got, Phase
from _llm_ways import Apart, AsyncVllm, OurEngine, Setting, SteppedVllm

GOAL = 0.9  # of the job alone, by job and streams together
CUDA = {
    "precision": "bf16",
    "sequences": 256,
    "step_tokens": 8192,
    "prompts": 20_000,
    "ttft_ms": 500.0,
    "tpot_ms": 40.0,
    "warm_seconds": 5.0,
}
CUDA_RATES, CUDA_SIZE = [8.0, 24.0], (249, 128)
LIVE_SHARE = 0.3  # of what the engine answers where it is full
_NUMBERS = itertools.count(1)  # of phases: no prompt of one is found cached in another
TTFT_FACTOR, TPOT_FACTOR = 4.0, 3.0  # objectives, over what a request takes that is alone


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table."""

    name: str
    way: str
    live: bool
    background: bool
    priorities: bool = False
    bounded: bool = False  # by --live-slowdown


ROWS = (
    Row("Twoshift, live alone", "Twoshift", True, False),
    Row("Twoshift, live and a job: the slowdown bounded", "Twoshift", True, True, bounded=True),
    Row("Twoshift, live and a job: the governor", "Twoshift", True, True),
    Row("Twoshift, the job alone", "Twoshift", False, True),
    Row("vLLM, live alone", "vLLM", True, False),
    Row("vLLM, live and a job, as they come", "vLLM", True, True),
    Row("vLLM, live and a job, its priorities", "vLLM", True, True, True),
    Row("vLLM, the job alone", "vLLM", False, True),
)


@dataclass(frozen=True, slots=True)
class Objectives:
    """Of a live request."""

    ttft_s: float
    tpot_s: float

    def __str__(self) -> str:
        return f"TTFT {1e3 * self.ttft_s:.0f} ms, TPOT {1e3 * self.tpot_s:.0f} ms"

    def kept(self, got: Got) -> str:
        kept = {"TTFT": _p(got.ttft_s, 99) <= 1e3 * self.ttft_s, "TPOT": _p(got.tpot_s, 99) <= 1e3 * self.tpot_s}
        missed = [name for name, holds in kept.items() if not holds]
        return f"no: {' and '.join(missed)}" if missed else "yes"


def main() -> None:
    given = _arguments()
    os.environ.setdefault("PYTHONWARNINGS", "ignore")  # what vLLM's packages have to say
    clients = given.job_clients or given.sequences
    device = "cuda" if given.cuda else "cpu"
    setting = Setting(given.model, given.precision, given.sequences, given.step_tokens, given.prompts, clients, device)
    engines = {"Twoshift": OurEngine, "vLLM": {"steps": SteppedVllm, "async": AsyncVllm}[given.vllm]}
    ways = dict[str, Apart]()
    problem = ""
    try:
        for name in ["Twoshift"] if given.cuda else engines:
            print(f"loading the model in {name}'s engine", flush=True)
            ways[name] = Apart(name, engines[name], setting)
            ways[name].loaded()  # one after the other: it measures its steps
        for rate in given.rates or [None]:
            problem += _compared(given, ways, rate)
    except RuntimeError as error:
        problem = str(error)
    finally:
        for each in ways.values():
            each.close()
    if problem:
        sys.exit(f"could not measure: {problem}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument(
        "--warm-seconds", type=float, default=0.0, help="of load before each of them (default: 0, 5 on a GPU)"
    )
    parser.add_argument("--turns", type=int, default=1, help="rounds over all of them, added up")
    parser.add_argument("--cuda", action="store_true", help="on a GPU, with sizes and objectives that suit one")
    parser.add_argument(
        "--rates", type=float, nargs="*", help=f"live requests a second; {LIVE_SHARE:g} of the capacity without it"
    )
    parser.add_argument("--live-slowdown", type=float, help="also with this bound on what the job costs live streams")
    parser.add_argument("--ttft-ms", type=float, help=f"{TTFT_FACTOR:g} times that of a request alone without it")
    parser.add_argument("--tpot-ms", type=float, help=f"{TPOT_FACTOR:g} times that of a request alone without it")
    parser.add_argument("--only", nargs="*", default=[], help="rows whose names have one of these words")
    parser.add_argument("--vllm", choices=("steps", "async"), default="steps", help="how plain vLLM is driven")
    parser.add_argument("--model", default="smollm")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--sequences", type=int, default=16, help="that an engine holds at most")
    parser.add_argument("--step-tokens", type=int, default=512, help="that a step reads at most")
    parser.add_argument(
        "--job-clients", type=int, help="requests of the job in plain vLLM at once; all places without it"
    )
    parser.add_argument("--prompts", type=int, default=1_000, help="of the job: more than it can answer in the time")
    if parser.parse_known_args()[0].cuda:
        parser.set_defaults(**CUDA, rates=CUDA_RATES)
    return parser.parse_args()


def _compared(given: argparse.Namespace, ways: dict[str, Apart], rate: float | None) -> str:
    """Prints the table; what went wrong, where something did."""
    if rate is None or not given.ttft_ms or not given.tpot_ms:
        print("calibrating on plain vLLM: requests alone, then as many as it holds", flush=True)
        alone = ways["vLLM"].calibrated(given.sequences)
        rate = rate or LIVE_SHARE * alone.per_s
        ttft_s = given.ttft_ms / 1e3 if given.ttft_ms else TTFT_FACTOR * alone.ttft_s
        objectives = Objectives(ttft_s, given.tpot_ms / 1e3 if given.tpot_ms else TPOT_FACTOR * alone.tpot_s)
        told = (
            f", {rate / alone.per_s:.0%} of the {alone.per_s:.2f} that it answers when full; "
            f"alone TTFT {1e3 * alone.ttft_s:.0f} ms, TPOT {1e3 * alone.tpot_s:.0f} ms"
        )
    else:
        objectives, told = Objectives(given.ttft_ms / 1e3, given.tpot_ms / 1e3), ""
    facts = (
        f"{rate:.2f} live requests/s{told}; objectives {objectives}; "
        f"{given.sequences} sequences, {given.step_tokens} tokens a step; {given.turns} x {given.seconds:g} s"
    )
    print(facts, flush=True)
    found = _measured(given, ways, rate, objectives)
    count = max(len(got.ttft_s) for got in found.values())
    print(f"\n{facts}, {count} live requests\n\n{_table(found, objectives)}\n\n{_harvest(found)}", flush=True)
    return "; ".join(_problems(found))


def _measured(given: argparse.Namespace, ways: dict[str, Apart], rate: float, objectives: Objectives) -> dict[Row, Got]:
    named = [row for row in ROWS if not given.only or any(word in row.name for word in given.only)]
    rows = [row for row in named if row.way in ways and (not row.bounded or given.live_slowdown)]
    found = {row: Got() for row in rows}
    for turn in range(given.turns):
        for row in rows:
            print(f"turn {turn + 1} of {given.turns}: {row.name}, {given.seconds:g} s", flush=True)
            live_rate = rate if row.live else 0.0
            bound = given.live_slowdown if row.bounded else None
            ways[row.way].promise(objectives.ttft_s, objectives.tpot_s, bound)
            phase = Phase(next(_NUMBERS), turn, given.seconds, live_rate, row.background, row.priorities)
            phase = replace(phase, warm_s=given.warm_seconds)
            if given.cuda:
                phase = replace(phase, live_size=CUDA_SIZE, job_size=CUDA_SIZE)
            found[row].add(got := ways[row.way].phase(phase))
            print(f"   {_line(row, got, objectives)}{''.join(f'; {note}' for note in got.notes if note)}", flush=True)
    return found


def _table(found: dict[Row, Got], objectives: Objectives) -> str:
    head = "| | live TTFT p50 / p99 | live TPOT p50 / p99 | gap p99 | live tokens/s | job tokens/s | objectives kept |"
    lines = [f"| {row.name} | {' | '.join(_cells(row, got, objectives))} |" for row, got in found.items()]
    return "\n".join([head, "|---|---|---|---|---|---|---|", *lines])


def _harvest(found: dict[Row, Got]) -> str:
    """What a job beside streams has of what they leave."""
    alone = next((got.job_tokens / got.seconds for row, got in found.items() if not row.live and row.background), 0.0)
    beside = [(row, got) for row, got in found.items() if row.way == "Twoshift" and row.live and row.background]
    shares = [(row, (got.job_tokens + got.live_tokens) / got.seconds / alone) for row, got in beside if alone]
    return "\n".join(
        f"{row.name}: {share:.2f} of the job alone, with the streams (goal {GOAL})" for row, share in shares
    )


def _cells(row: Row, got: Got, objectives: Objectives) -> list[str]:
    live = ["", "", "", "", ""]
    if row.live and got.ttft_s and got.tpot_s:
        live = [
            f"{_p(got.ttft_s, 50):,.0f} / {_p(got.ttft_s, 99):,.0f} ms",
            f"{_p(got.tpot_s, 50):,.1f} / {_p(got.tpot_s, 99):,.1f} ms",
            f"{_p(got.gaps_s, 99):,.0f} ms",
            f"{got.live_tokens / got.seconds:.1f}",
            objectives.kept(got),
        ]
    job = f"{got.job_tokens / got.seconds:.1f}" if row.background else ""
    return [*live[:4], job, live[4]]


def _line(row: Row, got: Got, objectives: Objectives) -> str:
    names = ("TTFT", "TPOT", "gap p99", "live tokens/s", "job tokens/s", "kept")
    return ", ".join(f"{name} {cell}" for name, cell in zip(names, _cells(row, got, objectives), strict=True) if cell)


def _problems(found: dict[Row, Got]) -> list[str]:
    tests: list[tuple[str, Callable[[Row, Got], bool]]] = [
        ("live answers were lost", lambda row, got: got.lost > 0),
        ("no live answers", lambda row, got: row.live and not got.tpot_s),
        ("no tokens of the job", lambda row, got: row.background and not row.live and not got.job_tokens),
    ]
    return [f"{row.name}: {told}" for row, got in found.items() for told, fails in tests if fails(row, got)]


def _p(seconds: list[float], quantile: float) -> float:
    return 1e3 * float(np.percentile(seconds, quantile))


if __name__ == "__main__":
    main()
