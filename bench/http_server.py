"""What a small request costs before any model is asked: our HTTP server against Starlette on uvicorn and on granian.

Each reads a request of the Open Inference Protocol and answers with a constant of as many bytes as the answer would
have; 64 clients in a closed loop, one process a server. docs/adr/0009 is made from it.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Sequence

from _environments import Environment
from _load import Plan, run_load
from _serve_peers import TWOSHIFT, Peer, take_turns
from _servers import environment, first_reply, free_port, running
from serve_identity import CLIENTS, constant, rows

os.environ.update(environment({}))
BYTES = 160
ASGI = {"BODY_BYTES": str(BYTES)}
WEB = Environment("web", ("granian", "httptools", "starlette", "uvicorn", "uvloop"))


def uvicorn() -> Peer:
    def words(_model: str, port: int) -> list[str]:
        given = ["--port", str(port), "--loop", "uvloop", "--http", "httptools", "--no-access-log"]
        return ["-m", "uvicorn", "_asgi:app", *given]

    return Peer("uvicorn", {}, words, WEB, extra=ASGI)


def granian() -> Peer:
    def words(_model: str, port: int) -> list[str]:
        return ["-m", "granian", "--interface", "asgi", "--port", str(port), "--loop", "uvloop", "--no-ws", "_asgi:app"]

    return Peer("granian", {}, words, WEB, extra=ASGI)


def measure(peer: Peer, requests: Sequence[bytes], seconds: float) -> float:
    """Requests a second."""
    port = free_port()
    with running(f"{peer.name} constant", peer.command("identity", port), peer.environ()) as pid:
        first_reply(peer.name, pid, port, requests[0])
        report = run_load(Plan(port=port, requests=list(requests), clients=CLIENTS, seconds=seconds))
    print(
        f"  {peer.name:10} {report.ok_per_s:8.1f} requests/s, p99 {report.ok.p99_ms:.2f} ms{report.failures}",
        flush=True,
    )
    return report.ok_per_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="of a run")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    requests = [TWOSHIFT.faces["identity"].request(row) for row in rows()]
    ours = constant(BYTES)
    found = take_turns(
        [ours, uvicorn(), granian()], lambda peer: measure(peer, requests, options.seconds), options.turns
    )
    mine = statistics.median(found.pop(ours.name))
    for name, theirs in found.items():
        print(f"times {name}: {mine / statistics.median(theirs):.2f}")


if __name__ == "__main__":
    main()
