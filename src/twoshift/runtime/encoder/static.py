"""Static embeddings: the mean of a text's token vectors, from model2vec's folders or StaticEmbedding's. Numpy alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import Broken, InvalidInput, UnusableModel
from twoshift.ports import Prepared, RuntimeInfo
from twoshift.runtime.artifacts import checksum_of_files
from twoshift.runtime.columns import DoneCall
from twoshift.runtime.devices import cpu_device, cpu_only
from twoshift.runtime.encoder.answers import encoder_info
from twoshift.runtime.encoder.architecture import static_architecture
from twoshift.runtime.encoder.fields import Fields
from twoshift.runtime.encoder.folder import ModelFolder, checksum_of_folder
from twoshift.runtime.encoder.pooling import read_steps, stepped
from twoshift.runtime.encoder.prompts import read_prompts
from twoshift.runtime.encoder.task import EmbeddingTask, Normalize, read_static_steps, static_folder, truncate_dim
from twoshift.runtime.encoder.tensor_names import check_finite, is_finite
from twoshift.runtime.encoder.tokens import TextTokenizer, TokenRows, concat
from twoshift.runtime.encoder.weights import opened, weight_files

__all__ = ["StaticEncoder", "is_static", "load_static_encoder"]

Floats = NDArray[np.float32]
_MODEL2VEC = "model2vec"
_MODEL2VEC_TOKENS = 512  # where its config does not say
_MOST_TOKENS = 1 << 15  # of a row: StaticEmbedding itself has no limit
_EXAMPLE_WORDS = 16
_GATHERED_TOKENS = 1 << 16  # vectors that are looked up at once


def is_static(path: Path) -> bool:
    """Whether a folder holds a table of token vectors and no network."""
    return static_folder(path) is not None or _is_model2vec(path)


def load_static_encoder(path: Path, name: str, device: str = "auto", precision: str | None = None) -> StaticEncoder:
    """The folder's table; raises InvalidInput, Broken."""
    cpu_only(device, "a static embedding model")
    if precision not in (None, "fp32"):
        raise InvalidInput("precision", precision, "fp32: a static embedding model supports no other precision")
    inside = static_folder(path) or path
    weights = weight_files(inside)
    table, is_model2vec = _table(weights[0])
    config = Fields.read_if_there(path / "config.json") if is_model2vec else Fields(path, {})
    steps = read_static_steps(path) if not is_model2vec else (Normalize(),) * config.flag("normalize")
    task = EmbeddingTask(("mean",), steps, truncate_dim(path))
    weights_checksum = checksum_of_files(weights)
    folder = ModelFolder(
        path=inside,
        architecture=static_architecture(len(table) - 1, table.shape[1]),
        task=task,
        max_tokens=_model2vec_tokens(config) if is_model2vec else _cut_at(inside),
        do_lower_case=False,
        weights=weights,
        weights_checksum=weights_checksum,
        checksum=checksum_of_folder(path, task, f"{weights_checksum} {checksum_of_files([inside / 'tokenizer.json'])}"),
        prompts=read_prompts(path),
        special_tokens=False,
    )
    info = encoder_info(folder, name, "numpy", cpu_device(1), "fp32", pads=False)
    return StaticEncoder(info, folder, table, is_model2vec)


def _cut_at(folder: Path) -> int:
    """Where the tokenizer's own file says so."""
    told = Fields.read(folder / "tokenizer.json").inner("truncation")
    return min(told.count("max_length", _MOST_TOKENS), _MOST_TOKENS)


def _model2vec_tokens(config: Fields) -> int:
    """512 where its config does not say; a null there means no limit."""
    if "max_length" in config:
        return min(config.count("max_length"), _MOST_TOKENS)
    return _MOST_TOKENS if "max_length" in dict(config.items()) else _MODEL2VEC_TOKENS


def _is_model2vec(path: Path) -> bool:
    return Fields.read_if_there(path / "config.json").text("model_type") == _MODEL2VEC


def _table(file: Path) -> tuple[Floats, bool]:
    """A vector a token, its weight in it, and one of zeros at the end for a row without tokens."""
    with opened(file) as tensors:
        held = {name: np.asarray(tensors.get_tensor(name)) for name in tensors.keys()}  # noqa: SIM118 - no mapping
    name = next((name for name in ("embeddings", "embedding.weight") if name in held), None)
    if name is None or held.keys() - {name, "mapping", "weights"}:
        told = f"holds the tensors {', '.join(sorted(held)[:5])}; expected only `embeddings` or `embedding.weight`"
        raise UnusableModel("model", str(file), f"{told}, and optionally `mapping` and `weights`")
    table = held[name].astype(np.float32)
    if table.ndim != 2:
        told = f"contains the tensor `{name}` with {table.ndim} axes; expected 2 axes: one vector for each token"
        raise UnusableModel("model", str(file), told)
    if "mapping" in held:
        if held["mapping"].min(initial=0) < 0 or held["mapping"].max(initial=0) >= len(table):
            raise Broken(f"{file} is damaged: `mapping` refers to vectors that do not exist; copy the file again")
        table = table[held["mapping"]]
    if "weights" in held:
        if held["weights"].shape != table.shape[:1]:
            told = f"`weights` has the shape {held['weights'].shape}, but there are {len(table)} tokens"
            raise Broken(f"{file} is damaged: {told}; copy the file again")
        table = table * held["weights"].astype(np.float32)[:, None]
    check_finite(file, [] if is_finite(table) else [name])
    return np.concatenate([table, np.zeros((1, table.shape[1]), np.float32)]), name == "embeddings"


def _unknown(folder: Path) -> int | None:
    """The id of the unknown token, which model2vec leaves out."""
    model = Fields.read(folder / "tokenizer.json").inner("model")
    named = dict(model.items())
    unknown, words = named.get("unk_token"), named.get("vocab")
    if isinstance(words, dict):
        found = words.get(unknown)
        return found if isinstance(found, int) else None
    return named["unk_id"] if isinstance(named.get("unk_id"), int) else None


class StaticEncoder:
    """A Runtime over a table of vectors."""

    def __init__(self, info: RuntimeInfo, folder: ModelFolder, table: Floats, is_model2vec: bool) -> None:
        task = cast("EmbeddingTask", folder.task)
        self._tokenizer = TextTokenizer(folder, False)
        self._steps, self._truncate_dim = read_steps(task, table.shape[1]), task.truncate_dim
        self._unknown = _unknown(folder.path) if is_model2vec else None
        self._most_characters = folder.max_tokens * self._tokenizer.median_characters() if is_model2vec else None
        self._table: Floats | None = table
        self.info = replace(info, example_words=self._known_words(), can_split=False)

    def prepare(self, rows: Sequence[Any]) -> TokenRows:
        """Texts as tokens; any thread may call it."""
        most = self._most_characters
        if most is None:
            return self._tokenizer.rows(rows)
        # model2vec cuts texts before it looks at their tokens
        long = np.array([isinstance(row, str) and len(row) > most for row in rows], np.bool_)
        prepared = self._tokenizer.rows([row[:most] if cut else row for row, cut in zip(rows, long, strict=True)])
        prepared.truncated = prepared.truncated | long
        return prepared if self._unknown is None else self._without_unknown(prepared, self._unknown)

    def launch(self, parts: Sequence[Prepared], live: bool = False) -> DoneCall:
        """Run one call over the rows of all parts; the device has one queue, so `live` changes nothing."""
        if self._table is None:
            raise Broken(f"{self.info.model} is closed")
        rows = concat(cast("Sequence[TokenRows]", parts))
        means = np.empty((len(rows), self._table.shape[1]), np.float32)
        ends = np.searchsorted(rows.offsets, np.arange(rows.offsets[0], rows.offsets[-1], _GATHERED_TOKENS))
        for start, stop in zip(ends, [*ends[1:], len(rows)], strict=True):
            means[start:stop] = _means(self._table, rows.slice(int(start), int(stop)))
        return DoneCall({"embedding": stepped(means, self._steps, self._truncate_dim)})

    def close(self) -> None:
        """Let the table go."""
        self._table = None

    def _known_words(self) -> tuple[str, ...]:
        """Words to make example rows of: the table may have none of the usual ones."""
        words = self._tokenizer.some_words(_EXAMPLE_WORDS)
        return tuple(word for word in words if self.prepare([word]).ids[0] != len(cast("Floats", self._table)) - 1)

    def _without_unknown(self, rows: TokenRows, unknown: int) -> TokenRows:
        kept = rows.ids != unknown
        if kept.all():
            return rows
        lengths = np.add.reduceat(kept, rows.offsets[:-1], dtype=np.int64)
        places = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        empty = np.flatnonzero(lengths == 0)
        ids = np.insert(rows.ids[kept], places[empty], len(cast("Floats", self._table)) - 1)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.maximum(lengths, 1))])
        return TokenRows(ids, offsets, rows.truncated)


def _means(table: Floats, rows: TokenRows) -> Floats:
    if not len(rows):
        return np.empty((0, table.shape[1]), np.float32)
    first = int(rows.offsets[0])
    vectors = table[rows.ids[first : int(rows.offsets[-1])]]
    sums = np.add.reduceat(vectors, rows.offsets[:-1] - first, axis=0)
    return (sums / rows.lengths[:, None]).astype(np.float32)
