"""Columns of an output: those that are kept, results, errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from twoshift.errors import InvalidInput

__all__ = ["ERROR", "is_vector", "output_schema", "result_array"]

ERROR = "error"


def output_schema(kept: pa.Schema, results: Mapping[str, pa.DataType]) -> pa.Schema:
    """Kept columns, results, error; raises InvalidInput where two have one name."""
    taken = {*kept.names}
    for name in (*results, ERROR):
        if name in taken:
            raise InvalidInput("keep", name, f"a column with another name: the results already have a column {name!r}")
    fields = [*kept, *(pa.field(name, kind) for name, kind in results.items()), pa.field(ERROR, pa.string())]
    return pa.schema(fields)


def result_array(values: NDArray[Any], failed: NDArray[np.bool_]) -> pa.Array:
    """A result column as Arrow has it: vectors as fixed-size lists, null where the row has failed."""
    match values.ndim:
        case 1:
            if values.dtype.kind in "OUS":
                texts = [None if bad else _text(each) for each, bad in zip(values, failed, strict=True)]
                return pa.array(texts, pa.string())
            return pa.array(np.ma.getdata(values), mask=failed | np.ma.getmaskarray(values))
        case 2:
            flat = pa.array(np.ascontiguousarray(values).reshape(-1))
            return pa.FixedSizeListArray.from_arrays(flat, values.shape[1], mask=pa.array(failed))
        case _:
            nested = [None if bad else row.tolist() for row, bad in zip(values, failed, strict=True)]
            return pa.array(nested)


def _text(value: Any) -> str | None:
    """As UTF-8 can hold it: a lone surrogate must not cost the rows beside it."""
    if value is None:
        return None
    data = value if isinstance(value, bytes) else str(value).encode("utf-8", "backslashreplace")
    return data.decode("utf-8", "backslashreplace")


def is_vector(kind: pa.DataType) -> bool:
    """Whether a column has a vector of floats in each row."""
    return pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type)
