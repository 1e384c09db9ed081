"""The whole product on one GPU, over HTTP: a job, live requests, and both, each line with its goal.

BERT-base size in bf16 with random weights, live queries of 16 tokens, documents of 4-510 tokens (lognormal, mean 90) in
Parquet. The load comes from processes of its own; `--cores 0-9/10-15` gives the server and the senders cores of their
own. Latency counts from when a request was sent (closed loop) or due (by the clock). A whole job counts by what it
commits, one beside live requests by what the device answers meanwhile.

| line | load | goal |
|---|---|---|
| live64 | 64 clients, closed loop, SLO 20 ms | 20,000 requests/s |
| live256 | 256 clients, closed loop, SLO 20 ms | 20,000 requests/s inside the SLO, refusals are 503 |
| derived | 256 clients with deadlines of 10 s | capacity as /v1/derived tells it, within 15 % of what is measured |
| texts32 | 32 clients with 32 texts each, SLO 20 ms | 0.9 inside the SLO of what the same have with deadlines of 10 s |
| job | `twoshift run --on`, nothing else | 0.95 of the rows/s of `twoshift run` in the same run |
| beside50 | the same beside 50 live requests/s by the clock, SLO 20 ms | 0.9 of it, live p99 6 ms |
| beside2000 | the same beside 2,000 | 99 % inside the SLO, live p99 15 ms |
| clock9000 | 9,000 requests/s by the clock, SLO 100 ms | 0.9 of them, or of capacity if that is less, inside the SLO |
| minilm | `twoshift run` of a MiniLM-size model | none: shown against `tokenizers` and the bare forward pass alone |

Of all loads but derived's: 504 under 1 % of replies, and no request without one. `--spy` samples the server's stacks,
which makes it slower. The exit status is 1 where a goal is missed. `--cpu` tries the program itself, small and with
minilm; it judges nothing.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from _gpu import torch_on_gpu
from _load import core_numbers
from _overload_cells import Served
from _overload_server import made_folder, model_words, serving
from _serve_gpu_goals import Outcome
from _serve_gpu_jobs import Documents, dedicated_per_s
from _serve_gpu_lines import CPU, GPU, Bench, Line, lines, small_job
from _servers import Skipped, environment, forget_profiles
from _spy import spied

SMALL = "minilm"
NAMES = [*lines(GPU), SMALL]


def measured(bench: Bench, wanted: dict[str, Line], options: argparse.Namespace) -> Iterator[Outcome]:
    """What was asked for, as it comes; a line that fails does not end the others."""
    began_s = time.monotonic()
    if SMALL in options.lines:
        yield _small(bench, options.cpu)
    if any(line.compared for line in wanted.values()):
        try:
            model = model_words(bench.setting.model)
            bench.dedicated = dedicated_per_s(model, bench.documents.files, bench.output(), bench.server_cores)
        except Exception as error:
            yield Outcome(line="dedicated", about="the job that others are compared with", failed=_said(error))
            wanted = {name: line for name, line in wanted.items() if not line.compared}
        else:
            progress(f"dedicated job: {bench.dedicated:,.0f} rows/s")
    slos_ms = {"slo": bench.setting.slo_ms, "long slo": bench.setting.long_slo_ms}
    for on, slo_ms in slos_ms.items():
        own = {name: line for name, line in wanted.items() if line.on == on}
        if own and time.monotonic() - began_s < options.for_s:
            yield from _on_server(bench, slo_ms, own, options, began_s + options.for_s)
    if options.peer == "vllm" and time.monotonic() - began_s < options.for_s:
        yield from _peer(bench)


def _small(bench: Bench, on_cpu: bool) -> Outcome:
    from twoshift.runtime.encoder.folder import find_minilm

    try:
        if on_cpu:
            return small_job(bench, ["minilm"], find_minilm(), with_device=False)
        folder = made_folder("minilm")
        return small_job(bench, [str(folder), "--device", "cuda"], folder, with_device=True)
    except Exception as error:
        return Outcome(line=SMALL, about="a dedicated job, MiniLM size", failed=_said(error))


def _on_server(
    bench: Bench, slo_ms: float, own: dict[str, Line], options: argparse.Namespace, until_s: float
) -> Iterator[Outcome]:
    """The lines of one server."""
    more = [] if options.fronts is None else ["--fronts", str(options.fronts)]
    try:
        with serving(Served(bench.setting.model, slo_ms, 1), bench.server_cores, jobs=True, more=more) as server:
            progress(f"a server with an SLO of {slo_ms:g} ms answers")
            for name, line in own.items():
                if time.monotonic() > until_s:
                    return
                try:
                    with spied(server.pid, options.spy, name):
                        outcome = line.measure(bench, server)
                    yield outcome
                except Exception as error:
                    yield Outcome(line=name, about="", failed=_said(error))
    except Exception as error:
        yield Outcome(line=", ".join(own), about=f"a server with an SLO of {slo_ms:g} ms", failed=_said(error))


def _peer(bench: Bench) -> Iterator[Outcome]:
    import _vllm_pooling

    try:
        yield from _vllm_pooling.measured(bench)
    except Skipped as why:
        progress(f"left out: {why}")
    except Exception as error:
        yield Outcome(line="vllm", about="vLLM's pooling server", failed=_said(error))


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, Skipped) else f"{type(error).__name__}: {error}"


def progress(said: str) -> None:
    print(f"[{time.monotonic() - _BEGAN_S:4.0f} s] {said}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", default=",".join(NAMES), help="some of the table, as in live64,job")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each load")
    parser.add_argument("--cores", default="", help="of the server and of the senders, as in 0-9/10-15")
    parser.add_argument("--senders", type=int, help="sender processes (default: one on each core of theirs, or 2)")
    parser.add_argument("--fronts", type=int, help="passed on to `twoshift serve`")
    parser.add_argument("--peer", choices=("vllm",), help="also this one, where it is installed")
    parser.add_argument("--json", type=Path, help="write all figures into this file, after each line")
    parser.add_argument("--spy", type=Path, metavar="FOLDER", help="write stacks of the server there, a file a line")
    parser.add_argument("--cpu", action="store_true", help="small, with minilm on a CPU: to try the program itself")
    parser.add_argument("--for-s", type=float, default=float("inf"), help="begin no further line after so long")
    options = parser.parse_args()
    options.lines = [name for name in options.lines.split(",") if name]
    if unknown := sorted(set(options.lines) - set(NAMES)):
        parser.error(f"no such line: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    return options


def _machine(options: argparse.Namespace, torch: Any) -> dict[str, Any]:
    name = torch.cuda.get_device_name() if torch else platform.processor() or platform.machine()
    told = {"device": name, "cores": os.cpu_count(), "python": platform.python_version(), "unix_s": time.time()}
    asked = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
    return told | ({"torch": str(torch.__version__)} if torch else {}) | {"options": asked}


def main() -> int:
    options = _options()
    torch = None if options.cpu else torch_on_gpu()
    os.environ.update(environment({}))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server ends, too
    setting = CPU if options.cpu else GPU
    machine = _machine(options, torch)
    print(f"{machine['device']}, {machine['cores']} cores, Python {machine['python']}", flush=True)
    forget_profiles()
    server_cores, _, sender_cores = options.cores.partition("/")
    senders = options.senders or len(core_numbers(sender_cores)) or 2
    outcomes = list[Outcome]()
    with tempfile.TemporaryDirectory() as work:
        documents = Documents(Path(work) / "docs", setting.job_rows, setting.job_tokens, setting.job_times)
        bench = Bench(setting, options.seconds, server_cores, sender_cores, senders, Path(work), documents)
        progress(f"{setting.job_rows:,} documents are written")
        wanted = {name: line for name, line in lines(setting).items() if name in options.lines}
        for outcome in measured(bench, wanted, options):
            outcomes.append(outcome)
            progress(outcome.shown(judged=not options.cpu))
            if options.json:
                told = {"machine": machine, "dedicated_rows_per_s": bench.dedicated, "lines": outcomes}
                options.json.write_bytes(msgspec.json.format(msgspec.json.encode(told), indent=1))
    return _summed_up(outcomes, judged=not options.cpu)


def _summed_up(outcomes: list[Outcome], judged: bool) -> int:
    """The table once more; the exit status."""
    print("\n" + "\n".join(outcome.in_short(judged) for outcome in outcomes))
    missed = [outcome.line for outcome in outcomes if (not outcome.is_met if judged else outcome.failed)]
    print(f"{len(outcomes)} lines, {len(outcomes) - len(missed)} {'met' if judged else 'ran'}")
    if missed:
        print(f"{'missed' if judged else 'failed'}: {', '.join(missed)}")
    return int(bool(missed))


_BEGAN_S = time.monotonic()

if __name__ == "__main__":
    raise SystemExit(main())
