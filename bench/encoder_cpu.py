"""MiniLM on the CPU in fp32, text to vectors, against bare runtimes and against sentence-transformers.

4,000 documents with a long tail of lengths (lognormal, mean 65 tokens). The ceilings are onnxruntime and OpenVINO over
calls that are tokenised and sorted by length beforehand, with the same graph; the peer is sentence-transformers' encode
at its defaults. All take turns, so that a slow spell of the machine hits each of them; the best turn counts.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from _corpus import documents

os.environ.setdefault("HF_HUB_OFFLINE", "1")
CHUNK = 1_000


def ours(texts: Sequence[str]) -> Callable[[], Any]:
    """Through the engine's background lane, as a job would."""
    from _feed import feed

    from twoshift.engine import Engine
    from twoshift.policy.cost import CallCost
    from twoshift.policy.lane_values import LaneLimits
    from twoshift.wiring.model_loading import load_model

    engine = Engine(load_model("minilm", device="cpu"), CallCost.line(0.01, 1e-4), LaneLimits())
    chunks = [texts[at : at + CHUNK] for at in range(0, len(texts), CHUNK)]
    return lambda: np.concatenate([block.columns["embedding"] for block in feed(engine, chunks)])


def bare(library: str, texts: Sequence[str]) -> Callable[[], Any]:
    """The session by itself over batches that are ready."""
    from twoshift.runtime.encoder.folder import read_minilm
    from twoshift.runtime.encoder.onnx_encoder import load_onnx_encoder, pack_rows

    encoder = load_onnx_encoder(read_minilm(), "minilm", library=library)
    session = encoder._session
    assert session is not None
    rows = encoder.prepare(texts)
    batches = [rows.padded(call, 0) for call in pack_rows(rows.lengths, session.lanes)]
    return lambda: session.run(batches)


def peer(texts: Sequence[str]) -> Callable[[], Any]:
    """sentence-transformers at its defaults."""
    from sentence_transformers import SentenceTransformer

    from twoshift.runtime.encoder.folder import find_minilm

    model = SentenceTransformer(str(find_minilm()), device="cpu")
    return lambda: model.encode(list(texts), show_progress_bar=False)


def main() -> None:
    from twoshift.runtime.encoder.folder import find_minilm, read_minilm
    from twoshift.runtime.encoder.onnx_encoder import load_onnx_encoder, pack_rows

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=4_000)
    parser.add_argument("--turns", type=int, default=2)
    options = parser.parse_args()
    texts = documents(find_minilm() / "tokenizer.json", options.documents, 65, 250)
    lengths = load_onnx_encoder(read_minilm(), "minilm").prepare(texts).lengths
    waste = np.mean([pack_rows(lengths[at : at + CHUNK], 2).padding_waste for at in range(0, len(texts), CHUNK)])
    print(f"{len(texts):,} documents, mean {lengths.mean():.1f} tokens, longest {lengths.max()}; padding {waste:.2%}")
    runs = {
        "twoshift, text to vectors": ours(texts),
        "bare OpenVINO": bare("openvino", texts),
        "bare onnxruntime": bare("onnxruntime", texts),
        "sentence-transformers": peer(texts),
    }
    rates: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(options.turns):
        for name, run in runs.items():
            began_s = time.perf_counter()
            run()
            rates[name].append(len(texts) / (time.perf_counter() - began_s))
            print(f"  turn {turn + 1}: {name:26} {rates[name][-1]:7.1f} docs/s", flush=True)
    best = {name: max(each) for name, each in rates.items()}
    mine, ceiling = best["twoshift, text to vectors"], max(best["bare OpenVINO"], best["bare onnxruntime"])
    print(f"of the best bare runtime: {mine / ceiling:.3f} (at least 0.95)")
    print(f"times sentence-transformers: {mine / best['sentence-transformers']:.2f} (at least 1.35)")


if __name__ == "__main__":
    main()
