"""An exported encoder's graph: rows of tokens in, the one output that holds the answer out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import Broken, InvalidInput, TwoshiftError, UnusableModel, first_line
from twoshift.runtime.encoder.architecture import Architecture
from twoshift.runtime.encoder.sessions import Batch
from twoshift.runtime.failures import device_failures
from twoshift.runtime.load_limit import loading_step

__all__ = ["TOKEN_INPUTS", "ExportedGraph"]

TOKEN_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
_OUTPUTS = ("sentence_embedding", "logits", "last_hidden_state", "token_embeddings")  # the first that is there
_DTYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
_MOST_TOKENS = 1 << 20
_FLOATS = ("tensor(float)", "tensor(float16)", "tensor(double)")


class ExportedGraph:
    """A session of onnxruntime's, called with padded rows of tokens; made by running it once, over one row."""

    def __init__(self, session: Any, path: Path, architecture: Architecture) -> None:
        self.path = path
        self._session = session
        self._inputs = {node.name: _dtype(node, path) for node in session.get_inputs()}
        self._pad_id, self._first_position = architecture.pad_id, architecture.first_position
        self.tokens = _fixed_tokens(session.get_inputs(), path)  # None: rows of any length
        self.output = _output(session.get_outputs(), path)
        tried = self._tried()
        self.axes, self.width = tried.ndim, tried.shape[-1] if tried.ndim else 0

    @property
    def asks_types(self) -> bool:
        """Whether the graph asks which of two texts a token is of."""
        return "token_type_ids" in self._inputs

    def __call__(self, batch: Batch) -> NDArray[np.float32]:
        """The output for padded rows, in fp32."""
        return np.asarray(self._session.run([self.output], self._given(batch))[0], np.float32)

    def _given(self, batch: Batch) -> dict[str, NDArray[Any]]:
        ids, lengths = batch["input_ids"], batch["lengths"]
        tokens = self.tokens or ids.shape[1]
        places = np.arange(tokens)
        made = {
            "input_ids": _widened(ids, tokens, self._pad_id),
            "attention_mask": places < lengths[:, None],
            "token_type_ids": _widened(batch.get("type_ids", np.zeros_like(ids)), tokens, 0),
            "position_ids": np.tile(places + self._first_position, (len(ids), 1)),
        }
        return {name: made[name].astype(dtype) for name, dtype in self._inputs.items()}

    def _tried(self) -> NDArray[np.float32]:
        """What one short row gives: files do not always say their outputs' axes, and some do not run at all."""
        loading_step(f"the first call of {self.path}")
        size = min(2, self.tokens or 2)
        row = {"input_ids": np.full((1, size), self._pad_id, np.int32), "lengths": np.array([size], np.int32)}
        try:
            with device_failures():
                answer = self(row)
        except TwoshiftError:
            raise
        except Exception as error:  # onnxruntime's errors have no common parent
            raise Broken(
                f"{self.path} cannot run a row of {size} tokens ({first_line(error)}); export the model again"
            ) from error
        if answer.shape[:1] != (1,):
            found = f"the shape {list(answer.shape)} for one input row"
            raise InvalidInput(f"{self.path}: {self.output}", found, "one output row per input row")
        return answer


def _dtype(node: Any, path: Path) -> Any:
    if node.type not in _DTYPES or len(node.shape) != 2:
        shown = f"{node.type} with {len(node.shape)} axes"
        accepted = "an input of type int64 or int32 with two axes: rows and tokens"
        raise InvalidInput(f"{path}: {node.name}", shown, accepted)
    if isinstance(node.shape[0], int):
        accepted = "a dynamic first axis: export the model with dynamic axes"
        raise InvalidInput(f"{path}: {node.name}", f"a fixed number of {node.shape[0]} rows", accepted)
    return _DTYPES[node.type]


def _fixed_tokens(nodes: list[Any], path: Path) -> int | None:
    fixed = {node.shape[1] for node in nodes if isinstance(node.shape[1], int)}
    if max(fixed, default=0) > _MOST_TOKENS:
        name = next(node.name for node in nodes if node.shape[1] == max(fixed))
        told = f"has the input {name!r} with {max(fixed):,} tokens on axis 1 (maximum: {_MOST_TOKENS:,})"
        raise UnusableModel("model", str(path), f"{told}; export the model with a dynamic axis")
    if len(fixed) > 1:
        told = f"has inputs with different fixed numbers of tokens on axis 1 ({', '.join(map(str, sorted(fixed)))})"
        raise UnusableModel("model", str(path), f"{told}; export the model with a dynamic axis")
    return next(iter(fixed), None)


def _output(nodes: list[Any], path: Path) -> str:
    names = [node.name for node in nodes if node.type in _FLOATS]
    if not names:
        accepted = f"an output with floating-point numbers, such as {_OUTPUTS[0]}"
        raise InvalidInput(f"{path}: outputs", [node.name for node in nodes], accepted)
    return next((name for name in _OUTPUTS if name in names), names[0])


def _widened(array: NDArray[Any], tokens: int, value: int) -> NDArray[Any]:
    missing = tokens - array.shape[1]
    return np.pad(array, ((0, 0), (0, missing)), constant_values=value) if missing else array
