"""More load than there is capacity: how much is still answered inside the SLO, and how fast the rest is refused.

MiniLM, 16-token queries. Capacity is what a closed loop gets out of the same server, before and after; its requests
carry a long timeout, so that nothing is refused there. Then requests come by the clock at 0.7 and at 1.4 times
capacity, and latency counts from when each was due.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys

from _corpus import queries
from _load import Plan, Report, post, run_load
from _servers import environment, first_reply, forget_profiles, free_port, running

os.environ.update(environment({}))
TOKENS, QUERIES, CLIENTS = 16, 1_024, 64
LOADS = (0.7, 1.4)
ANSWERED, REFUSED_MS = 0.9, 5.0
PATIENT = "x-request-timeout-ms: 10000"


def request(text: str, *headers: str) -> bytes:
    body = {"model": "minilm", "input": text, "encoding_format": "base64"}
    return post("/v1/embeddings", json.dumps(body).encode(), ("content-type: application/json", *headers))


def capacity_per_s(port: int, texts: list[str], seconds: float) -> float:
    """Requests a second of as many clients as keep it busy."""
    patient = [request(text, PATIENT) for text in texts]
    return run_load(Plan(port=port, requests=patient, clients=CLIENTS, seconds=seconds)).ok_per_s


def overloaded(port: int, texts: list[str], rate_per_s: float, slo_s: float, seconds: float) -> Report:
    requests = [request(text) for text in texts]
    return run_load(Plan(port=port, requests=requests, rate_per_s=rate_per_s, slo_s=slo_s, seconds=seconds))


def shown(load: float, report: Report, capacity: float) -> str:
    ok, refused, share = report.ok, report.refused, report.in_time_per_s / capacity
    return (
        f"  {load} of {capacity:.1f}/s: {report.in_time_per_s:.1f}/s inside the SLO, {share:.3f} of capacity; "
        f"answers p50 {ok.p50_ms:.1f}, p99 {ok.p99_ms:.1f} ms; {refused.count} refused, p50 {refused.p50_ms:.2f}, p99 "
        f"{refused.p99_ms:.2f} ms{report.failures}, {report.lost} lost; the sender was {report.sent_late_ms:.2f} ms "
        f"late at p99 and used {report.cpu_share:.2f} of a core"
    )


def main() -> int:
    from twoshift.runtime.encoder.folder import find_minilm

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of a run")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--slo-ms", type=float, default=200.0)
    options = parser.parse_args()
    forget_profiles()
    texts = queries(find_minilm() / "tokenizer.json", QUERIES, TOKENS)
    answered: dict[float, list[float]] = {load: [] for load in LOADS}
    refused_ms = list[float]()
    port = free_port()
    words = [sys.executable, "-m", "twoshift", "serve", "minilm", "--slo-ms", str(options.slo_ms), "--port", str(port)]
    with running("overload", words) as pid:
        first_reply("overload", pid, port, request(texts[0], PATIENT))
        before = capacity_per_s(port, texts, options.seconds / 2)
        for _ in range(options.turns):
            for load in LOADS:
                report = overloaded(port, texts, load * before, options.slo_ms / 1e3, options.seconds)
                after = capacity_per_s(port, texts, options.seconds / 2)
                capacity, before = (before + after) / 2, after
                print(shown(load, report, capacity), flush=True)
                answered[load].append(report.in_time_per_s / capacity)
                if load > 1:
                    refused_ms.append(report.refused.p50_ms)
    most, refusal_ms = statistics.median(answered[LOADS[-1]]), statistics.median(refused_ms)
    print(f"answered inside the SLO at {LOADS[-1]} of capacity: {most:.3f} of capacity (at least {ANSWERED})")
    print(f"a refusal at the median: {refusal_ms:.2f} ms, {refusal_ms / REFUSED_MS:.2f} of {REFUSED_MS:.0f} ms")
    return int(most < ANSWERED or refusal_ms > REFUSED_MS)


if __name__ == "__main__":
    raise SystemExit(main())
