"""The types of columns that are text in a file, as those of CSV are: found in a sample, or stated by the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from twoshift.batch.inputs.conform import fitted

__all__ = ["NULL_WORDS", "TYPES", "as_typed", "kept_type", "model_type", "type_name"]

pc: Any = pyarrow.compute  # whose functions are made as it is imported: no checker knows them
TYPES: Mapping[str, pa.DataType] = {
    "bool": pa.bool_(),
    "float": pa.float64(),
    "int": pa.int64(),
    "string": pa.string(),
}
_MOST_SHOWN = 40  # characters of a value

# A kept value must come back as it was: 007, -0, 1e5 and 1234567890123456789 stay text
_KEPT_INT = r"0|-?[1-9]\d{0,17}"
_KEPT_FLOAT = r"0|-?[1-9]\d{0,14}|-?(?:0|[1-9]\d{0,14})\.\d{1,15}"
_KEPT_BOOL = r"true|false"

# A model wants numbers; what begins with a 0 or is too long for one is an id, unless the user says otherwise
_WHOLE = r"[-+]?(?:0|[1-9]\d{0,17})"
_REAL = r"(?i)[-+]?(?:(?:(?:0|[1-9]\d{0,17})(?:\.\d*)?|\.\d+)(?:e[-+]?\d{1,3})?|nan|inf|infinity)"
_TRUTH = r"(?i)true|false"
_FITTING = {"int": r"[-+]?0*\d{1,18}", "float": r"(?i)[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d{1,3})?|nan|inf|infinity)"}
_FITTING |= {"bool": r"(?i)true|false|0|1"}
# Arrow's own, less those of NaN; in a column of text they are text
NULL_WORDS = ("", "#N/A", "#N/A N/A", "#NA", "N/A", "NA", "NULL", "n/a", "null")
_NULLS = pa.array(NULL_WORDS)


def kept_type(column: pa.Array) -> pa.DataType:
    """What a column is where nothing of it may be lost; null where it has no value."""
    values = column.drop_null()
    if not len(values):
        return pa.null()
    if _all(values, _KEPT_INT):
        return pa.int64()
    if _all(values, _KEPT_FLOAT):
        return pa.float64()
    return pa.bool_() if _all(values, _KEPT_BOOL) else pa.string()


def model_type(column: pa.Array) -> pa.DataType:
    """What a column is for a model; null where it has no value."""
    values = _trimmed(column).drop_null()
    if not len(values):
        return pa.null()
    if _all(values, _WHOLE):
        return pa.int64()
    if _all(values, _REAL):
        return pa.float64()
    return pa.bool_() if _all(values, _TRUTH) else pa.string()


def type_name(kind: pa.DataType) -> str:
    """A type as `--types` has it; a column of which nothing was seen takes numbers."""
    if pa.types.is_integer(kind):
        return "int"
    if pa.types.is_floating(kind) or pa.types.is_null(kind):
        return "float"
    return "bool" if pa.types.is_boolean(kind) else "string"


def as_typed(column: pa.Array, name: str | None, is_stated: bool = False) -> tuple[pa.Array, dict[int, str]]:
    """A column of text as that type, and by row the values that do not fit and are null now.

    Other columns keep their own, unless the type `is_stated` by the user.
    """
    if pa.types.is_decimal(column.type):  # of databases; models take no other numbers than Python's
        column = column.cast(pa.float64())
    if not _is_text(column.type):
        if name is None or not is_stated or pa.types.is_nested(column.type):
            return column, {}
        return fitted(column, TYPES[name])
    if name is None or name == "string":
        return column, {}
    values = _trimmed(column)
    fits = _matches(values, _FITTING[name]).fill_null(True)
    unfit = np.flatnonzero(~fits.to_numpy(zero_copy_only=False)).tolist()
    if unfit:
        values = pc.if_else(fits, values, pa.scalar(None, values.type))
    values = pc.replace_substring_regex(values, r"^\+", "")  # which Arrow does not take
    return values.cast(TYPES[name]), {row: _shown(column[row].as_py()) for row in unfit}


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _trimmed(column: pa.Array) -> pa.Array:
    """Without spaces around it; null where it says that there is no value."""
    trimmed = pc.utf8_trim(column.cast(pa.string()), " \t")
    return pc.if_else(pc.is_in(trimmed, _NULLS), pa.scalar(None, pa.string()), trimmed)


def _matches(values: pa.Array, pattern: str) -> pa.Array:
    flags, body = ("(?i)", pattern[4:]) if pattern.startswith("(?i)") else ("", pattern)
    return pc.match_substring_regex(values, f"{flags}^(?:{body})$")


def _all(values: pa.Array, pattern: str) -> bool:
    return bool(pc.all(_matches(values, pattern)).as_py())


def _shown(value: str) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."
