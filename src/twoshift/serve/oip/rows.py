"""Tensors to rows, as a model takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import InvalidInput
from twoshift.ports import RuntimeInfo
from twoshift.runtime.table import Table
from twoshift.serve.oip.datatypes import BYTES, datatype_of
from twoshift.serve.oip.tensors import GivenTensor, bad_tensor
from twoshift.types import Tensor

__all__ = ["RowReader", "declared_inputs", "row_reader"]

RowReader = Callable[[Sequence[GivenTensor]], Sequence[Any]]

_TEXT, _QUERY = Tensor("text", "text"), Tensor("query", "text")
_FEATURES = "features"
_ONE_VALUE = ((), (1,))  # shapes of a row that holds one: clients write either
_WIDEST = {"b": np.bool_, "i": np.int64, "u": np.uint64, "f": np.float64}


def declared_inputs(info: RuntimeInfo) -> tuple[Tensor, ...]:
    """What a row has; of a class that does not say, what its example has."""
    example = info.example
    if info.inputs or example is None:
        return info.inputs
    if isinstance(example, str):
        return (_TEXT,)
    fields = example if isinstance(example, Mapping) else {_FEATURES: example}
    return tuple(tensor for name, value in fields.items() if (tensor := _tensor_like(str(name), value)) is not None)


def _tensor_like(name: str, value: object) -> Tensor | None:
    try:
        array = np.asarray(value)
    except ValueError:  # a ragged list: no tensor is like it
        return None
    if array.dtype.kind in "biuf":
        return Tensor(name, array.dtype.name, array.shape)
    return Tensor(name, "text", array.shape) if array.dtype.kind == "U" else None


def row_reader(info: RuntimeInfo) -> RowReader:
    """How the tensors of this model's requests become its rows; it raises InvalidInput that names a tensor."""
    if not info.inputs:
        return _undeclared(info.example)
    if info.inputs == (_TEXT,):
        return _text_rows
    if info.inputs == (_QUERY, _TEXT):
        return _pair_rows
    typed = info.runtime != "sklearn"  # which takes whatever numbers and texts its columns held
    return _Declared(info.inputs, typed).rows


def _undeclared(example: object) -> RowReader:
    """Of a user's class: rows that look like its example, dicts where there is none."""
    if isinstance(example, str):
        return _text_rows
    return _any_rows if example is None or isinstance(example, Mapping) else _bare_rows


def _text_rows(given: Sequence[GivenTensor]) -> list[Any]:
    (text,) = _named(given, ("text",))
    return _texts(text)


def _pair_rows(given: Sequence[GivenTensor]) -> list[Any]:
    query, text = _named(given, ("query", "text"))
    queries, texts = _texts(query), _texts(text)
    if len(queries) == 1:
        queries = queries * len(texts)  # one query, many texts: what reranking is
    if len(queries) != len(texts):
        raise bad_tensor("query", f"{len(queries):,} rows", f"1 row, or {len(texts):,} rows as in 'text'")
    return list(zip(queries, texts, strict=True))


def _any_rows(given: Sequence[GivenTensor]) -> Table:
    """As they come: only the user's class knows."""
    if len(given) != 1:
        _check_rows(_named(given, [each.name for each in given]))
    return Table({each.name: _column(each.values, each.shape) for each in given})


def _bare_rows(given: Sequence[GivenTensor]) -> list[Any]:
    (one,) = _named(given, (_FEATURES,))
    column = _column(one.values, one.shape)
    return column.tolist() if column.ndim == 1 or column.dtype.kind == "O" else list(column)


class _Declared:
    """Of a model that says what its inputs are."""

    def __init__(self, inputs: tuple[Tensor, ...], typed: bool) -> None:
        self._names = [tensor.name for tensor in inputs]
        self._inputs = [(tensor.shape, datatype_of(tensor) if typed else None) for tensor in inputs]

    def rows(self, given: Sequence[GivenTensor]) -> Table:
        found = _named(given, self._names)
        _check_rows(found)
        return Table({each.name: self._values(at, each) for at, each in enumerate(found)})

    def _values(self, at: int, given: GivenTensor) -> NDArray[Any]:
        shape, datatype = self._inputs[at]
        if datatype not in (None, given.datatype) and (given.datatype, datatype) != ("BF16", "FP32"):
            raise bad_tensor(given.name, given.datatype, f"the datatype {datatype}")
        row = tuple(given.shape[1:])
        if shape in _ONE_VALUE and row in _ONE_VALUE:
            return _column(given.values, (given.shape[0], *shape))
        if len(row) != len(shape) or any(want not in (-1, size) for want, size in zip(shape, row, strict=True)):
            raise bad_tensor(given.name, list(given.shape), f"the shape {[-1, *shape]}, where -1 stands for any size")
        return _column(given.values, given.shape)


def _named(given: Sequence[GivenTensor], names: Sequence[str]) -> list[GivenTensor]:
    """The tensors of those names, in that order: each once, and no others."""
    if len(given) == 1 and len(names) == 1 and given[0].name == names[0]:
        return [given[0]]
    found = {each.name: each for each in given}
    if len(found) != len(given) or found.keys() != set(names) or not given:
        came = [each.name[:80] for each in given]
        raise InvalidInput("inputs", came, f"the tensors {', '.join(names)}, each once" if names else "a tensor")
    return [found[name] for name in names]


def _texts(given: GivenTensor) -> list[str]:
    if given.datatype != BYTES or not isinstance(given.values, list):
        raise bad_tensor(given.name, given.datatype, f"the datatype {BYTES} (texts in UTF-8)")
    if tuple(given.shape[1:]) not in _ONE_VALUE:
        raise bad_tensor(given.name, list(given.shape), "the shape [rows] or [rows, 1]")
    return given.values


def _check_rows(given: Sequence[GivenTensor]) -> None:
    rows = given[0].shape[0]
    for each in given:
        if each.shape[0] != rows:
            raise bad_tensor(each.name, list(each.shape), f"{rows:,} rows, as in {given[0].name[:80]!r}")


def _column(values: NDArray[Any] | list[str], shape: Sequence[int]) -> NDArray[Any]:
    """A value for each row: a number or text, or an array of them."""
    if isinstance(values, list):
        texts = np.empty(len(values), object)
        texts[:] = values
        return texts.reshape(shape)
    if len(shape) > 1:
        return values.reshape(shape)
    # As rows of JSON and of files have them: a class computes the same in both shifts
    return values.astype(_WIDEST[values.dtype.kind], copy=False)
