"""A model that returns its input, 64 clients: the server's own speed, against the same peers and against its floor.

Twoshift and Triton get the very same bytes, of the Open Inference Protocol, in JSON and in its binary extension; the
others get plain JSON. Validation, metrics and batching are on. The floor is Twoshift's HTTP server with a handler that
returns a constant: nothing that is written in Python over this parser and this loop can be faster.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from _load import Plan, Report, run_load
from _serve_peers import TWOSHIFT, Peer, add_choice, chosen, take_turns
from _servers import Skipped, environment, first_reply, forget_profiles, free_port, running

os.environ.update(environment({}))
CLIENTS, ROWS = 64, 256
AT_LEAST = {"Triton": 3.0}
FLOOR = "the floor"
Reports = dict[str, Report]  # by face


def rows() -> list[list[float]]:
    """Different numbers in each request, exact in fp32."""
    return (np.random.default_rng(0).integers(0, 1 << 10, (ROWS, 4)) / 64).tolist()


def loaded(name: str, port: int, face: str, requests: Sequence[bytes], seconds: float) -> Report:
    report = run_load(Plan(port=port, requests=list(requests), clients=CLIENTS, seconds=seconds))
    print(
        f"  {name:10} {face:17} {report.ok_per_s:8.1f} requests/s, p50 {report.ok.p50_ms:6.2f}, p99 "
        f"{report.ok.p99_ms:6.2f} ms; sender {report.cpu_share:.2f} of a core{report.failures}",
        flush=True,
    )
    return report


def measure(peer: Peer, given: Sequence[Sequence[float]], seconds: float) -> Reports:
    """Every face of a server, once it has answered with what it was given."""
    if peer.name == FLOOR:
        return measure_floor(peer, given, seconds)
    port, faces = free_port(), {name: face for name, face in peer.faces.items() if name.startswith("identity")}
    reports = Reports()
    with running(f"{peer.name} identity", peer.command("identity", port), peer.environ()) as pid:
        for name, face in faces.items():
            body = first_reply(f"{peer.name} identity", pid, port, face.request(given[0])).body
            if face.numbers(body).tolist() != list(given[0]):
                raise Skipped(f"{peer.name} answers {name} with {body[:300]!r}")
            reports[name] = loaded(peer.name, port, name, [face.request(row) for row in given], seconds)
    return reports


def measure_floor(floor: Peer, given: Sequence[Sequence[float]], seconds: float) -> Reports:
    port, requests = free_port(), [TWOSHIFT.faces["identity"].request(row) for row in given]
    with running(floor.name, floor.command("identity", port)) as pid:
        first_reply(floor.name, pid, port, requests[0])
        return {"identity": loaded(floor.name, port, "a constant", requests, seconds)}


def constant(body_bytes: int = 160) -> Peer:
    """As many bytes as an answer has."""
    program = str(Path(__file__).with_name("_constant.py"))
    return Peer(FLOOR, {}, lambda _model, port: [program, str(port), str(body_bytes)])


def ratio(ours: Sequence[Reports], theirs: Sequence[Reports], face: str) -> float:
    """Requests a second over theirs: the median of the turns, in the same face where both have it."""
    pairs = [(mine[face], other.get(face) or other["identity"]) for mine, other in zip(ours, theirs, strict=False)]
    return statistics.median(mine.ok_per_s / other.ok_per_s for mine, other in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="of a run")
    parser.add_argument("--turns", type=int, default=3)
    add_choice(parser)
    options = parser.parse_args()
    forget_profiles()
    given = rows()
    all_of_them = [constant(), TWOSHIFT, *chosen(options)]
    reports = take_turns(all_of_them, lambda peer: measure(peer, given, options.seconds), options.turns)
    ours = reports.pop(TWOSHIFT.name)
    for name, theirs in reports.items():
        asked = f" (at least {AT_LEAST[name]})" if name in AT_LEAST else ""
        shown = (f"{face.removeprefix('identity, ')} {ratio(ours, theirs, face):.2f}" for face in ours[0])
        p99_ms = statistics.median(each["identity"].ok.p99_ms for each in theirs)
        mine_ms = statistics.median(each["identity"].ok.p99_ms for each in ours)
        print(f"times {name}: {', '.join(shown)}{asked}; p99 {mine_ms:.2f} ms to {p99_ms:.2f}")


if __name__ == "__main__":
    main()
