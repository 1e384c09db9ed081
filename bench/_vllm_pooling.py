"""vLLM's pooling server with the same model and load, where vLLM is installed; it has no SLO and runs no jobs."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from functools import partial

from _overload_server import NAME, model_words, requests
from _serve_gpu_goals import Goal, Outcome
from _serve_gpu_lines import Bench
from _servers import Skipped, first_reply, free_port, running

_READY_S = 300.0  # it compiles at its first start
_FRONTS = 4  # its documented way to more than one core for HTTP and tokenising


def measured(bench: Bench) -> Iterator[Outcome]:
    """The closed loops of the table; raises Skipped where it does not run."""
    if importlib.util.find_spec("vllm") is None:
        raise Skipped("vLLM is not installed")
    setting, port = bench.setting, free_port()
    loads = {
        "live64": partial(bench.load, clients=setting.clients),
        "live256": partial(bench.load, clients=setting.crowd),
        "texts32": partial(bench.load, rows=setting.texts, clients=setting.text_clients),
        "clock2000": partial(bench.load, rate_per_s=setting.many_per_s),
    }
    with running("vllm pooling", _words(bench, port), {"VLLM_USE_FLASHINFER_SAMPLER": "0"}) as pid:
        first_reply("vllm pooling", pid, port, requests(1)[0], _READY_S)
        for name, load in loads.items():
            report = load(port)
            goals = [Goal("requests/s", report.ok_per_s), Goal("p50, ms", report.ok.p50_ms)]
            goals += [Goal("p99, ms", report.ok.p99_ms), Goal("requests/s inside the SLO", report.in_time_per_s)]
            goals += [Goal("replies other than 200", sum(report.statuses.values()) - report.ok.count)]
            yield Outcome(line=f"vllm {name}", about=f"vLLM, the load of {name}", goals=goals,
                          figures={"report": report})  # fmt: skip


def _words(bench: Bench, port: int) -> list[str]:
    from twoshift.runtime.encoder.folder import find_minilm

    words = ["taskset", "-c", bench.server_cores] if bench.server_cores else []
    words += [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve"]
    if bench.setting.model == "minilm":
        words += [str(find_minilm()), "--dtype", "float32"]
    else:
        words += [model_words(bench.setting.model)[0], "--dtype", "bfloat16", "--max-model-len", "512"]
        words += ["--api-server-count", str(_FRONTS)]
    return [*words, "--runner", "pooling", "--served-model-name", NAME, "--port", str(port),
            "--gpu-memory-utilization", "0.3", "--disable-uvicorn-access-log"]  # fmt: skip
