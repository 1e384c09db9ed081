"""Encoders on the CPU: a graph made here from the safetensors, rows sorted by length inside each call."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from twoshift.config import home
from twoshift.errors import Broken, InvalidInput
from twoshift.policy.packing import PackedCalls, PackLimits, pack
from twoshift.ports import Prepared, RuntimeInfo
from twoshift.runtime.columns import DoneCall
from twoshift.runtime.devices import cpu_device, usable_threads
from twoshift.runtime.encoder.answers import answer_width, columns_of, encoder_info
from twoshift.runtime.encoder.cache import GraphCache
from twoshift.runtime.encoder.folder import ModelFolder
from twoshift.runtime.encoder.graph import GRAPH_FORMAT, has_type_ids, write_graph
from twoshift.runtime.encoder.int8 import INT8_FORMAT, write_int8_graph
from twoshift.runtime.encoder.precision_gate import checked_parity, measured_parity
from twoshift.runtime.encoder.sessions import Batch, Session, choose_library, open_session, version_of
from twoshift.runtime.encoder.tokens import TextTokenizer, TokenRows, concat
from twoshift.runtime.failures import device_failures

__all__ = ["OnnxEncoder", "load_onnx_encoder", "pack_rows", "restored"]

_Run = Callable[[Sequence[Batch]], list[NDArray[np.float32]]]
_MAX_WASTE = 0.03
_BATCH_TOKENS = 1024  # a token costs the same from 512 to 8192; small ones spread evenly over the streams


def load_onnx_encoder(
    folder: ModelFolder, name: str, threads: int | None = None, library: str | None = None, root: Path | None = None,
    precision: str = "fp32",
) -> OnnxEncoder:  # fmt: skip
    """The folder's model on the CPU in fp32 or int8; raises InvalidInput, also where int8 loses too much, or Broken."""
    library, root = library or choose_library(), root or home()
    threads = usable_threads(threads)

    def exact() -> OnnxEncoder:
        return OnnxEncoder(*_loaded(folder, name, threads, library, root, "fp32"))

    if precision == "fp32":
        return exact()
    encoder = LossyOnnxEncoder(exact, *_loaded(folder, name, threads, library, root, precision))
    try:
        found = checked_parity(encoder, folder.task, f"{INT8_FORMAT} {version_of(library)}", exact, root)
    except BaseException:
        encoder.close()
        raise
    encoder.info = dataclasses.replace(encoder.info, parity=found)
    return encoder


def _loaded(
    folder: ModelFolder, name: str, threads: int, library: str, root: Path, precision: str
) -> tuple[RuntimeInfo, ModelFolder, TextTokenizer, Session]:
    tokenizer = TextTokenizer(folder, has_type_ids(folder))
    session = _session(folder, threads, library, root, precision)
    info = encoder_info(folder, name, session.library, cpu_device(threads), precision)
    return info, folder, tokenizer, session


def _session(folder: ModelFolder, threads: int, library: str, root: Path, precision: str) -> Session:
    if precision == "int8":
        cache = GraphCache(root, folder.checksum, f"int8-{GRAPH_FORMAT}.{INT8_FORMAT}")
        write = functools.partial(write_int8_graph, folder, library)
    else:
        cache = GraphCache(root, folder.checksum, f"fp32-{library}-{GRAPH_FORMAT}")
        write = functools.partial(write_graph, folder, fused=library == "onnxruntime")
    try:
        return open_session(cache.get(write), threads, library)
    except Broken:
        cache.forget()  # once: a disk may have damaged it since
        return open_session(cache.get(write), threads, library)


class OnnxEncoder:
    """A Runtime. A call's rows are sorted by length and run in batches that are nearly without padding."""

    def __init__(self, info: RuntimeInfo, folder: ModelFolder, tokenizer: TextTokenizer, session: Session) -> None:
        self.info = info
        self._task = folder.task
        self._width = answer_width(folder.task, folder.architecture.hidden)
        self._pad_id = folder.architecture.pad_id
        self.row_preparer = tokenizer
        self._session: Session | None = session
        self.lanes = session.lanes
        self.padding_tokens = 0  # that calls have carried so far

    def prepare(self, rows: Sequence[Any]) -> TokenRows:
        """Texts, or pairs of texts, as tokens; any thread may call it."""
        return self.row_preparer.rows(rows)

    def launch(self, parts: Sequence[Prepared], live: bool = False) -> DoneCall:
        """Run one call over the rows of all parts; the device has one queue, so `live` changes nothing."""
        session = self._opened()
        return self._done(parts, session.streams, session.run)

    def launch_beside(self, parts: Sequence[Prepared]) -> DoneCall:
        """The same with a part of the device, beside others."""
        session = self._opened()
        return self._done(parts, session.streams // session.lanes, session.run_beside)

    def close(self) -> None:
        """Let the model go."""
        self._session = None

    def _opened(self) -> Session:
        if self._session is None:
            raise Broken(f"{self.info.model} is closed")
        return self._session

    def _done(self, parts: Sequence[Prepared], streams: int, run: _Run) -> DoneCall:
        rows = concat(cast("Sequence[TokenRows]", parts))
        calls = pack_rows(rows.lengths, streams)
        batches = [rows.padded(call, self._pad_id) for call in calls]
        self.padding_tokens += sum(batch["input_ids"].size for batch in batches) - int(rows.lengths.sum())
        with device_failures():
            answers = run(batches)
        return DoneCall(columns_of(self._task, restored(calls, answers, self._width)))


class LossyOnnxEncoder(OnnxEncoder):
    """The same in a lossy precision, which can be held against full precision."""

    def __init__(self, exact: Callable[[], OnnxEncoder], *loaded: Any) -> None:
        super().__init__(*loaded)
        self._exact = exact

    def parity_on(self, rows: Sequence[Any]) -> float:
        """How near the worst answer is to full precision's; 1 is equal. Rows that it cannot take are left out."""
        good = [row for row in rows if self._takes(row)]
        return measured_parity(self, self._task, self._exact, good) if good else 1.0

    def _takes(self, row: Any) -> bool:
        try:
            self.prepare([row])
        except InvalidInput:
            return False
        return True


def pack_rows(lengths: NDArray[np.int64], streams: int) -> PackedCalls:
    """Rows by length, in batches with less than 3 % of padding; enough of them for every stream to have one."""
    longest = int(lengths.max(initial=1))
    share = -(-int(lengths.sum()) // streams)  # a small call is spread over them
    return pack(lengths, PackLimits(max(longest, min(_BATCH_TOKENS, share)), padded=True, max_waste=_MAX_WASTE))


def restored(calls: PackedCalls, answers: list[NDArray[np.float32]], width: int) -> NDArray[np.float32]:
    """The batches' answers as one array, in the order of the rows."""
    result = np.empty((len(calls.order), width), np.float32)
    if answers:
        result[calls.order] = np.concatenate(answers)
    return result
