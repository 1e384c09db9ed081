"""A request's results as tensors."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from twoshift.engine import RowResult
from twoshift.errors import BrokenModel, Inapplicable, InvalidInput
from twoshift.serve.oip.datatypes import BYTES, wire

__all__ = ["Output", "outputs_of", "unknown_output"]

_length = struct.Struct("<I").pack


class Output(msgspec.Struct):
    """One column of the rows that were asked for."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: NDArray[Any]

    def raw(self) -> bytes:
        """Little-endian, row after row; a text as its length and its bytes."""
        if self.datatype != BYTES:
            return self.values.tobytes()
        return b"".join([part for each in self._elements() for part in (_length(len(each)), each)])

    def listed(self) -> list[Any]:
        """For JSON, flat; raises InvalidInput where it holds what JSON has not."""
        if self.datatype == BYTES:
            return self._texts()
        listed = self.values.ravel().tolist()
        if self.values.dtype.kind == "f" and not math.isfinite(sum(listed)) and not np.isfinite(self.values).all():
            raise self._binary_only("NaN or infinity")
        return listed

    def _elements(self) -> list[bytes]:
        return [each if isinstance(each, bytes) else str(each).encode() for each in self.values.ravel().tolist()]

    def _texts(self) -> list[str]:
        values = self.values.ravel().tolist()
        try:
            return [each.decode() if isinstance(each, bytes) else str(each) for each in values]
        except UnicodeDecodeError:
            raise self._binary_only("bytes that are not text") from None

    def _binary_only(self, what: str) -> InvalidInput:
        why = f"because the output contains {what}; request the output with `binary_data: true`"
        return Inapplicable(f"output {self.name!r}", "JSON", why)


def outputs_of(rows: Sequence[RowResult], names: Sequence[str] | None) -> list[Output]:
    """The columns of those names, all without any; raises InvalidInput for a name that there is not."""
    found = list[Output]()
    for name in rows[0].columns if names is None else names:
        if name not in rows[0].columns:
            raise unknown_output(name, rows[0].columns)
        datatype, values = wire(name, _column(rows, name))
        found.append(Output(name, datatype, values.shape, values))
    return found


def unknown_output(name: str, known: Iterable[str]) -> InvalidInput:
    """The error for an output that the model has not."""
    return InvalidInput("outputs", name, f"one of these outputs: {', '.join(known)}")


def _column(rows: Sequence[RowResult], name: str) -> NDArray[Any]:
    """One value a row; rows that lie side by side in their call are not copied."""
    first = rows[0]
    whole, start, stop = first.columns, first.index, first.index + len(rows)
    if len(rows) == 1 or all(row.columns is whole and row.index == at for at, row in enumerate(rows, start)):
        return whole[name][start:stop]
    try:
        return np.concatenate([row.columns[name][row.index : row.index + 1] for row in rows])
    except (KeyError, ValueError) as error:
        raise BrokenModel(
            f"the model's output {name!r} differs in shape between two calls, or is missing in a call: {error}"
        ) from error
