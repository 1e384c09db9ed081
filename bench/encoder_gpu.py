"""Encoders on a GPU, text to vectors in host memory, against sentence-transformers and against the bare device.

Random weights of three sizes, 20,000 documents of 4-510 tokens (lognormal, mean 90). In one run for each size:
documents a second through the engine; the ceilings, which are the bare packed forward pass over tokens that lie on the
device and the tokenizer alone; sentence-transformers' encode at its defaults on a part of the documents. For the
BERT-base size also one 16-token query through the engine, and both lanes at once at several objectives.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _corpus import documents
from _gpu import torch_on_gpu

os.environ.setdefault("HF_HUB_OFFLINE", "1")

DOCUMENTS, PEER_DOCUMENTS, CHUNK = 20_000, 2_000, 1_000
LIVE_PER_S, LANES_S = 50.0, 4.0
SIZES = {
    "bert-base": (12, 768, 12, 3072),
    "minilm": (6, 384, 12, 1536),
    "bge-large": (24, 1024, 16, 4096),
}


@dataclass(frozen=True, slots=True)
class Bench:
    """A model under test and its documents."""

    engine: Any
    texts: list[str]
    cost: Any


def make_folder(path: Path, size: str, tokenizer: Path) -> Path:
    """A BERT of that size with random weights, and a real tokenizer."""
    import torch
    from safetensors.torch import save_file
    from transformers import BertConfig, BertModel

    layers, hidden, heads, inner = SIZES[size]
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=inner
    )
    with torch.device("cuda"):
        model = BertModel(config)
    path.mkdir()
    save_file(
        {name: values.cpu().contiguous() for name, values in model.state_dict().items()}, path / "model.safetensors"
    )
    config.architectures = ["BertModel"]
    (path / "config.json").write_text(json.dumps(config.to_dict()))
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        if (tokenizer.parent / name).is_file():
            shutil.copy(tokenizer.parent / name, path / name)
    settings = json.loads((path / "tokenizer_config.json").read_text()) | {"model_max_length": 512}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    del model
    torch.cuda.empty_cache()
    return path


def start(folder: Path, texts: list[str], **limits: Any) -> Bench:
    """The folder's model in an engine, with its cost measured."""
    from twoshift.engine import Engine
    from twoshift.engine.example_rows import made_texts
    from twoshift.engine.measure import MeasureLimits, measure_profile
    from twoshift.policy.fit import fit_call_cost
    from twoshift.policy.lane_values import LaneLimits
    from twoshift.types import CallSize
    from twoshift.wiring.model_loading import load_model

    began_s = time.perf_counter()
    runtime = load_model(str(folder), device="cuda")
    loaded_s = time.perf_counter() - began_s
    examples = made_texts(runtime, 90)
    assert examples is not None
    samples = measure_profile(runtime, examples.make, examples.lengths, MeasureLimits(seconds=3.0))
    cost = fit_call_cost(samples).cost
    per_token_us, one_ms = 1e6 * cost.per_token_s, 1e3 * cost.at(0.5).seconds(CallSize.of([16]))
    print(
        f"  loaded in {loaded_s:.1f} s; a call of 16 tokens {one_ms:.2f} ms, then {per_token_us:.2f} us a token",
        flush=True,
    )
    return Bench(Engine(runtime, cost, LaneLimits(**limits)), texts, cost)


def best(count: int, work: Callable[[], Any], times: int = 3) -> float:
    """Documents a second, the best of some runs."""
    best_s = float("inf")
    for _ in range(times):
        began_s = time.perf_counter()
        work()
        best_s = min(best_s, time.perf_counter() - began_s)
    return count / best_s


def chunks(texts: list[str]) -> Iterator[list[str]]:
    for at in range(0, len(texts), CHUNK):
        yield texts[at : at + CHUNK]


def throughput(bench: Bench) -> float:
    """Text to vectors through the engine's background lane."""
    from _feed import feed

    def work() -> None:
        vectors = [block.columns["embedding"] for block in feed(bench.engine, chunks(bench.texts))]
        assert sum(map(len, vectors)) == len(bench.texts)

    work()
    return best(len(bench.texts), work)


def tokenizer_alone(tokenizer: Any, texts: list[str]) -> float:
    """Texts to tokens by the library of a TextTokenizer, whole chunks on all cores."""
    library = tokenizer._tokenizer
    return best(len(texts), lambda: [library.encode_batch_fast(part) for part in chunks(texts)])


def bare_forward(bench: Bench, tokens: int = 65_536) -> float:
    """The packed network over tokens that lie on the device, nothing copied, nothing waited for in between."""
    import torch

    from twoshift.runtime.encoder.cuda.rows import PackedRows

    runtime = bench.engine.runtime
    rows = runtime.prepare(bench.texts)
    model, device = runtime._lanes[False]._model, runtime._lanes[False]._device
    edges = np.searchsorted(rows.offsets, np.arange(0, rows.offsets[-1] + tokens, tokens))
    calls = []
    for first, last in itertools.pairwise(edges):
        part = rows.slice(int(first), int(min(last, len(rows))))
        if len(part) < 1:
            continue
        span = slice(int(part.offsets[0]), int(part.offsets[-1]))
        ids = torch.from_numpy(part.ids[span].copy()).to(device)
        starts = torch.from_numpy((part.offsets - part.offsets[0]).astype(np.int32)).to(device)
        calls.append((ids, starts, int(part.lengths.max())))

    def work() -> None:
        with torch.inference_mode():
            for ids, starts, longest in calls:
                model(ids, PackedRows.of(starts, len(ids), longest), None)
            torch.cuda.synchronize()

    work()
    return best(len(bench.texts), work)


def peer(folder: Path, texts: list[str]) -> float:
    """sentence-transformers' encode at its defaults."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cuda")
    return best(len(texts), lambda: model.encode(texts, show_progress_bar=False), 2)


def one_query(bench: Bench) -> tuple[float, float]:
    """p50 and p99, in ms, of one 16-token query from text to vector, nothing else running."""
    text = " ".join(["river"] * 14)
    times_s = []
    for _ in range(500):
        began_s = time.perf_counter()
        bench.engine.submit(bench.engine.runtime.prepare([text]), bench.engine.now_s() + 1)[0].result()
        times_s.append(time.perf_counter() - began_s)
    return percentiles(times_s)


def percentiles(times_s: list[float]) -> tuple[float, float]:
    return tuple(1e3 * float(each) for each in np.percentile(times_s, [50, 99]))  # type: ignore[return-value]


class Live:
    """Queries at random moments, from their scheduled arrival to their answer."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.times_s, self.failed = bench, list[float](), 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        rng, engine = np.random.default_rng(1), self.bench.engine
        text, at_s = " ".join(["river"] * 14), time.perf_counter()
        while not self._stop.is_set():
            at_s += rng.exponential(1 / LIVE_PER_S)
            time.sleep(max(0.0, at_s - time.perf_counter()))
            try:
                engine.submit(engine.runtime.prepare([text]), engine.now_s() + 1)[0].result()
                self.times_s.append(time.perf_counter() - at_s)
            except Exception:
                self.failed += 1


def background(bench: Bench, blocks: list[Any], seconds: float) -> float:
    """Documents a second of the background lane, its tokens ready."""
    engine, began_s, rows, waiting, at = bench.engine, time.perf_counter(), 0, [], 0
    while time.perf_counter() - began_s < seconds:
        while len(waiting) < 3:
            waiting.append((engine.submit_block(blocks[at % len(blocks)]), len(blocks[at % len(blocks)])))
            at += 1
        future, count = waiting.pop(0)
        future.result()
        rows += count
    elapsed_s = time.perf_counter() - began_s
    for future, _ in waiting:
        future.result()
    return rows / elapsed_s


def lanes(bench: Bench, slo_ms: float) -> None:
    """Background alone, then with live queries, in one engine with that objective."""
    blocks = [bench.engine.runtime.prepare(part) for part in chunks(bench.texts)]
    background(bench, blocks, 0.5)
    alone = background(bench, blocks, LANES_S)
    live = Live(bench)
    both = background(bench, blocks, LANES_S)
    live.stop()
    again = background(bench, blocks, LANES_S / 2)
    p50, p99 = percentiles(live.times_s)
    alone = max(alone, again)
    print(
        f"  SLO {slo_ms:g} ms: background {both:,.0f} docs/s of {alone:,.0f} alone = {both / alone:.3f}; live at "
        f"{LIVE_PER_S:g}/s p50 {p50:.2f} ms, p99 {p99:.2f} ms, {len(live.times_s)} queries, {live.failed} failed",
        flush=True,
    )


def run(size: str, work: Path, tokenizer: Path, with_peer: bool) -> None:
    from twoshift.engine import Engine
    from twoshift.policy.lane_values import LaneLimits

    print(f"{size}:", flush=True)
    folder = make_folder(work / size, size, tokenizer)
    texts = documents(tokenizer, DOCUMENTS, 90, 510)
    bench = start(folder, texts)
    ours, bare = throughput(bench), bare_forward(bench)
    tokens = tokenizer_alone(bench.engine.runtime.row_preparer, texts)
    theirs = peer(folder, texts[:PEER_DOCUMENTS]) if with_peer else float("nan")
    print(
        f"  text to vectors {ours:,.0f} docs/s; bare packed forward {bare:,.0f} ({ours / bare:.2f} of it); tokenizer "
        f"alone {tokens:,.0f}; sentence-transformers {theirs:,.0f} ({ours / theirs:.1f} times)",
        flush=True,
    )
    if size == "bert-base":
        p50, p99 = one_query(bench)
        print(f"  one 16-token query: p50 {p50:.2f} ms, p99 {p99:.2f} ms", flush=True)
        runtime = bench.engine.runtime
        bench.engine.drain()
        for slo_ms in (4.0, 6.0, 10.0, 20.0, 50.0):
            engine = Engine(runtime, bench.cost, LaneLimits(slo_s=slo_ms / 1e3))
            lanes(Bench(engine, texts, bench.cost), slo_ms)
            engine.drain()
        runtime.close()
    else:
        bench.engine.close()
    shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", default=list(SIZES), help=f"of {', '.join(SIZES)}")
    parser.add_argument("--no-peer", action="store_true", help="leave sentence-transformers out")
    options = parser.parse_args()
    torch = torch_on_gpu()
    from twoshift.runtime.encoder.folder import find_minilm

    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as work:
        for size in options.sizes:
            run(size, Path(work), find_minilm() / "tokenizer.json", not options.no_peer)


if __name__ == "__main__":
    main()
