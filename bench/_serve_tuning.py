"""Which settings are the best for each peer: `python bench/_serve_tuning.py`, on a machine with nothing else to do.

Every variant serves MiniLM as `serve.py` does and the model that returns its input as `serve_identity.py` does. What
wins is what the peers' programs have by default.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping

import serve
import serve_identity
from _corpus import queries
from _serve_peers import PEERS, Peer
from _servers import Skipped

TWO = {"PEER_INSTANCES": "2", "PEER_THREADS": "1"}
VARIANTS: dict[str, list[Mapping[str, str]]] = {
    "Triton": [{}, {"PEER_WAIT_MS": "2"}, {"PEER_INSTANCES": "2"}, TWO],
    "LitServe": [{}, {"PEER_WAIT_MS": "0.2"}, {"PEER_WAIT_MS": "10"}, {"PEER_FRONTS": "2"}, TWO],
    "BentoML": [{}, {"PEER_SLOWEST_MS": "60000"}, {"PEER_SLOWEST_MS": "500"}, TWO],
    "Ray Serve": [{}, {"PEER_WAIT_MS": "0"}, {"PEER_WAIT_MS": "10"}, {"RAY_SERVE_ENABLE_HA_PROXY": "0"}, TWO],
}


def tried(peer: Peer, bare: serve.Bare, texts: list[str], seconds: float) -> list[float]:
    """Shares of the bare model by clients, then requests a second of the other model."""
    runs = serve.measure(peer, bare, texts, seconds, slices=4)
    reports = serve_identity.measure(peer, serve_identity.rows(), seconds)
    return [*(run.share for run in runs.values()), max(report.ok_per_s for report in reports.values())]


def main() -> None:
    from twoshift.runtime.encoder.folder import find_minilm

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="of a run")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(VARIANTS), help="the peers, by name")
    options = parser.parse_args()
    texts = queries(find_minilm() / "tokenizer.json", serve.QUERIES, serve.TOKENS)
    bare = serve.Bare(texts)
    found: dict[tuple[str, str], list[list[float]]] = {}
    for peer in (peer for peer in PEERS if peer.name in options.only):
        for _ in range(options.turns):
            for variant in VARIANTS[peer.name]:
                shown = " ".join(f"{key}={value}" for key, value in variant.items()) or "as it is"
                print(f"{peer.name}, {shown}", flush=True)
                try:
                    found.setdefault((peer.name, shown), []).append(
                        tried(peer.changed(variant), bare, texts, options.seconds)
                    )
                except Skipped as why:
                    print(f"  skipped: {why}", flush=True)
    for (name, shown), turns in found.items():
        *shares, per_s = (statistics.median(each) for each in zip(*turns, strict=True))
        told = ", ".join(f"{clients} clients {share:.3f}" for clients, share in zip(serve.CLIENTS, shares, strict=True))
        print(f"{name:10} {shown:35} of the bare model with {told}; its input back {per_s:.0f} requests/s")


if __name__ == "__main__":
    main()
