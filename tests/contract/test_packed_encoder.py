"""The packed GPU encoder: its arithmetic on the CPU with a plain attention, the whole of it where there is a GPU."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.filterwarnings("ignore")  # other people's libraries warn as they load

torch: Any = pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("transformers", reason="the torch extra is not installed")
tiny: Any = pytest.importorskip("tiny_models", reason="the torch extra is not installed")

from twoshift.engine import Engine  # noqa: E402
from twoshift.errors import InvalidInput  # noqa: E402
from twoshift.policy.cost import CallCost  # noqa: E402
from twoshift.policy.lane_values import LaneLimits  # noqa: E402
from twoshift.runtime.encoder import load_encoder  # noqa: E402
from twoshift.runtime.encoder.cuda import borrowed  # noqa: E402
from twoshift.runtime.encoder.cuda.bert import PackedBert, can_pack  # noqa: E402
from twoshift.runtime.encoder.cuda.heads import PackedHead  # noqa: E402
from twoshift.runtime.encoder.cuda.rows import PackedRows  # noqa: E402
from twoshift.runtime.encoder.cuda.shapes import CallShape, coarse_class, coarse_classes, fine_class  # noqa: E402
from twoshift.runtime.encoder.folder import find_minilm, read_folder  # noqa: E402
from twoshift.runtime.encoder.generic import load_generic_encoder  # noqa: E402
from twoshift.runtime.encoder.graph import has_type_ids  # noqa: E402
from twoshift.runtime.encoder.tokens import TextTokenizer  # noqa: E402

CPU = torch.device("cpu")
BF16_COSINE = 0.9995
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
CLASSIFIER = "AutoModelForSequenceClassification"


def plain_attention(
    query: Any, key: Any, value: Any, rows: PackedRows, scale: float | None = None, window: tuple[int, int] = (-1, -1)
) -> Any:
    """Row by row, with every distance looked at: slow and plainly right."""
    result = torch.zeros_like(query)
    starts = rows.starts.tolist()
    for first, last in itertools.pairwise(starts):
        away = torch.arange(last - first)[None] - torch.arange(last - first)[:, None]
        seen = torch.ones_like(away, dtype=torch.bool)
        seen &= away >= -window[0] if window[0] >= 0 else seen
        seen &= away <= window[1] if window[1] >= 0 else seen
        parts = (each[first:last].transpose(0, 1) for each in (query, key, value))
        if last > first:
            attended = torch.nn.functional.scaled_dot_product_attention(*parts, attn_mask=seen, scale=scale)
            result[first:last] = attended.transpose(0, 1)
    return result


def answer_of(columns: Any) -> np.ndarray:
    name = next(name for name in ("embedding", "scores", "score") if name in columns)
    return np.asarray(columns[name]).reshape(len(columns[name]), -1)


def reference(folder: Path, rows: list[Any]) -> np.ndarray:
    runtime = load_generic_encoder(read_folder(folder), "reference")
    return answer_of(runtime.launch([runtime.prepare(rows)]).wait())


def cosines(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    return (ours * theirs).sum(axis=1) / norms


@pytest.mark.parametrize("spare", [(0, 0), (37, 5)], ids=["exact", "filled up to a class"])
@pytest.mark.parametrize(
    ("style", "kind", "labels"),
    [
        *((style, "AutoModel", None) for style in ("bert", "roberta", "xlm-roberta", "modernbert", "distilbert")),
        *((style, CLASSIFIER, labels) for style in ("bert", "roberta", "modernbert") for labels in (3, 1)),
    ],
)
def test_packed_rows_answer_as_padded_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, style: str, kind: str, labels: int | None, spare: tuple[int, int]
) -> None:
    monkeypatch.setattr(borrowed, "attend", plain_attention)
    folder = read_folder(tiny.make_folder(tmp_path / "m", style, kind, **({"num_labels": labels} if labels else {})))
    given = tiny.PAIRS if labels else tiny.TEXTS
    typed = has_type_ids(folder)
    network: Any
    if can_pack(folder.architecture):
        network = PackedBert(folder, typed, CPU, torch.float32, plain_attention)
    else:
        network = borrowed.borrow_network(folder, CPU, torch.float32)
    assert network is not None
    head = PackedHead(folder, CPU)
    rows = TextTokenizer(folder, typed).rows(given)
    longest = int(rows.lengths.max())
    shape = CallShape(int(rows.lengths.sum()) + spare[0], len(rows) + spare[1], longest, typed)
    buffer = np.full(shape.words, 7, np.int32)  # what a buffer held before must not matter
    shape.fill(buffer, [rows.slice(0, 5), rows.slice(5, len(rows))])
    with torch.inference_mode():
        answer = shape.run(
            lambda ids, rows, types: head(network(ids, rows, types), rows),
            torch.from_numpy(buffer),
        )
    np.testing.assert_allclose(answer[: len(rows)].numpy(), reference(folder.path, given), atol=2e-5)


@pytest.mark.parametrize(
    "poolings", [["cls"], ["max"], ["mean", "lasttoken"], ["mean_sqrt_len_tokens", "weightedmean"]]
)
def test_every_pooling_of_packed_rows_is_that_of_padded_ones(tmp_path: Path, poolings: list[str]) -> None:
    path = tiny.make_folder(tmp_path / "m", "bert")
    (path / "1_Pooling").mkdir()
    types = ["sentence_transformers.models.Transformer", "sentence_transformers.models.Pooling"]
    modules = [{"idx": k, "name": str(k), "path": where, "type": types[k]} for k, where in enumerate(("", "1_Pooling"))]
    (path / "modules.json").write_text(json.dumps(modules))
    (path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": poolings}))
    folder = read_folder(path)
    rows = TextTokenizer(folder, False).rows(tiny.TEXTS)
    starts = torch.from_numpy(rows.offsets.astype(np.int32))
    packed = PackedRows.of(starts, int(starts[-1]), int(rows.lengths.max()))
    network = PackedBert(folder, False, CPU, torch.float32, plain_attention)
    with torch.inference_mode():
        answer = PackedHead(folder, CPU)(network(torch.from_numpy(rows.ids), packed, None), packed)
    np.testing.assert_allclose(answer.numpy(), reference(path, tiny.TEXTS), atol=2e-5)


def test_a_network_that_answers_otherwise_when_packed_runs_padded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind_to_rows(query: Any, key: Any, value: Any, rows: PackedRows, *_: Any) -> Any:
        whole = PackedRows.of(rows.starts[[0, -1]], len(query), len(query))
        return plain_attention(query, key, value, whole)

    monkeypatch.setattr(borrowed, "attend", blind_to_rows)
    folder = read_folder(tiny.make_folder(tmp_path / "m", "distilbert", initializer_range=0.4))
    assert borrowed.borrow_network(folder, CPU, torch.float32) is None


def test_a_network_without_the_attention_interface_runs_padded(tmp_path: Path) -> None:
    folder = read_folder(tiny.make_folder(tmp_path / "m", "mpnet"))
    assert borrowed.borrow_network(folder, CPU, torch.float32) is None


@pytest.mark.parametrize(
    ("tokens", "rows", "expected"),
    [
        (1, 1, (16, 1)),
        (16, 1, (16, 1)),
        (17, 1, (32, 1)),
        (40, 3, (64, 4)),
        (20, 5, (64, 16)),
        (2047, 256, (2048, 256)),
    ],
)
def test_a_small_call_is_filled_up_to_a_class_that_was_recorded(
    tokens: int, rows: int, expected: tuple[int, int]
) -> None:
    shape = coarse_class(CallShape(tokens, rows, min(tokens, 512), False), 512)
    assert (shape.tokens, shape.rows) == expected
    assert shape in set(coarse_classes(512, False))


@pytest.mark.parametrize("tokens", [1025, 2048, 2049, 5000, 9999, 32_768])
def test_sizes_that_come_again_get_a_class_with_little_to_fill_up(tokens: int) -> None:
    shape = fine_class(CallShape(tokens, 57, 300, False), 384)
    assert shape is not None
    assert 0 <= shape.tokens - tokens <= tokens / 32
    assert (shape.rows, shape.longest) == (64, 384)


def test_a_gpu_that_is_not_there_is_refused_with_what_is(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"PyTorch .* finds (no|\d+) GPU"):
        load_encoder(str(tmp_path), device="cuda:99")


# On a GPU


@needs_gpu
@pytest.mark.parametrize(
    ("style", "kind", "labels"),
    [
        *((style, "AutoModel", None) for style in ("bert", "roberta", "modernbert", "distilbert", "mpnet")),
        *((style, CLASSIFIER, labels) for style in ("bert", "modernbert") for labels in (3, 1)),
    ],
)
def test_on_a_gpu_in_bf16_the_answers_are_those_of_fp32_whatever_rides_along(
    tmp_path: Path, style: str, kind: str, labels: int | None
) -> None:
    more = {"initializer_range": 0.1, **({"num_labels": labels} if labels else {})}
    folder = tiny.make_folder(tmp_path / "m", style, kind, **more)
    given = (tiny.PAIRS if labels else tiny.TEXTS) * 30
    expected = reference(folder, given)
    runtime = load_encoder(str(folder), device="cuda")
    assert runtime.info.live_stream == (style != "mpnet")  # which has no attention interface, and runs padded
    rows = runtime.prepare(given)
    together = answer_of(runtime.launch([rows]).wait())
    alone = np.concatenate(
        [answer_of(runtime.launch([rows.slice(k, k + 1)], live=True).wait()) for k in range(len(tiny.TEXTS))]
    )
    mixed = answer_of(runtime.launch([rows.slice(3, 9), rows.slice(0, 2), rows.slice(20, 60)]).wait())
    order = [*range(3, 9), 0, 1, *range(20, 60)]
    runtime.close()
    for ours, theirs in ((together, expected), (alone, expected[: len(alone)]), (mixed, expected[order])):
        if labels == 1:
            np.testing.assert_allclose(ours, theirs, atol=0.02)
        else:
            assert cosines(ours, theirs).min() >= BF16_COSINE


@needs_gpu
def test_on_a_gpu_minilm_agrees_with_sentence_transformers() -> None:
    try:
        folder = find_minilm()
    except InvalidInput:
        pytest.skip("the minilm extra is not installed")
    given = tiny.TEXTS + [" ".join(tiny.ENGLISH.split()[k % 7 :] * (k % 9 + 1)) for k in range(200)]
    expected = tiny.sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(given)
    runtime = load_encoder(str(folder), device="cuda")
    answers = answer_of(runtime.launch([runtime.prepare(given)]).wait())
    runtime.close()
    assert cosines(answers, expected).min() >= BF16_COSINE


@needs_gpu
def test_on_a_gpu_live_rows_are_answered_beside_a_block(tmp_path: Path) -> None:
    folder = tiny.make_folder(tmp_path / "m", "bert", initializer_range=0.1)
    expected = reference(folder, tiny.TEXTS)
    runtime = load_encoder(str(folder), device="cuda")
    assert runtime.info.live_stream
    engine = Engine(runtime, CallCost.line(1e-3, 1e-6), LaneLimits(slo_s=1.0))
    block = engine.submit_block(runtime.prepare(tiny.TEXTS * 500))
    live = [
        engine.submit(runtime.prepare([tiny.TEXTS[k % 14]]), engine.now_s() + 1)[0].result(120)["embedding"]
        for k in range(100)
    ]
    assert cosines(np.array(live), expected[[k % 14 for k in range(100)]]).min() >= BF16_COSINE
    answers = block.result(60).columns["embedding"]
    assert cosines(answers, np.tile(expected, (500, 1))).min() >= BF16_COSINE
    stats = engine.stats()
    assert sum(use.device_s for use in stats.lanes.values()) == pytest.approx(stats.busy_s)
    engine.close()


@needs_gpu
def test_on_a_gpu_running_out_of_memory_is_told_and_survived(tmp_path: Path) -> None:
    folder = tiny.make_folder(tmp_path / "m", "bert")
    runtime = load_encoder(str(folder), device="cuda")
    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (64 << 20)) / total)
    try:
        engine = Engine(runtime, CallCost.line(1e-3, 1e-9), LaneLimits(max_rows=1 << 20, max_tokens=1 << 24))
        result = engine.submit_block(runtime.prepare(tiny.TEXTS * 8000)).result(120)
        assert result.errors == {}
        assert engine.stats().failed_calls > 0
        assert engine.stats().max_tokens < 1 << 24
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    engine.close()
