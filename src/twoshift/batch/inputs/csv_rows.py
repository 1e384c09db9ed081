"""Rows of CSV: fields by the header's names."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
from numpy.typing import NDArray

from twoshift.batch.inputs.columns import WantedColumns, assembled
from twoshift.batch.inputs.file import InputFile
from twoshift.batch.inputs.jsonl import too_long
from twoshift.batch.inputs.quotes import is_outside, real_quotes
from twoshift.batch.inputs.records import RecordBlock
from twoshift.errors import Broken, InvalidInput

__all__ = ["CsvRows", "delimiter_of", "header_names"]

_RETURN = 13


def delimiter_of(file: InputFile) -> str:
    """What separates the fields of such a file."""
    return "\t" if file.format == "tsv" else ","


def header_names(record: bytes, file: InputFile) -> list[str]:
    """The names in the first row; raises InvalidInput where it cannot be one."""
    count, returns = _fields(np.frombuffer(record, np.uint8), delimiter_of(file))
    if returns:
        raise InvalidInput("inputs", file.location, "a file whose lines end in \\n or \\r\\n, not in \\r alone")
    columns = _parsed(record, delimiter_of(file), count, list(range(count)))
    try:
        names = [column[0].as_py() or "" for column in columns]
    except UnicodeDecodeError:
        raise InvalidInput("inputs", file.location, "a file whose header is valid UTF-8") from None
    return names


class CsvRows:
    """Records to batches of strings: empty is null, `""` is an empty string."""

    def __init__(self, header: list[str], file: InputFile, wanted: WantedColumns) -> None:
        self._header, self._file, self._wanted = header, file, wanted
        self._names = wanted.among(header, file.location)
        self._delimiter = delimiter_of(file)

    def batch(self, block: RecordBlock) -> pa.RecordBatch:
        """The block's rows."""
        errors = self._errors(block)
        if not errors:
            text = block.data[block.starts[0] : block.stops[-1]]
        else:
            good = [place for place in range(len(block)) if place not in errors]
            text = b"\n".join(block.row(place) for place in good)
        arrays = self._arrays(text, len(block) - len(errors))
        if errors:
            arrays = _spread(arrays, len(block), errors)
        return assembled(dict(zip(self._names, arrays, strict=True)), len(block), self._wanted, errors)

    def _errors(self, block: RecordBlock) -> dict[int, str]:
        """The rows that the parser must not see."""
        base = int(block.starts[0])
        array = np.frombuffer(block.data, np.uint8)[base : int(block.stops[-1])]
        starts, stops = block.starts - base, block.stops - base
        quotes = real_quotes(array, ord(self._delimiter))
        counts = _within(_outside(array, ord(self._delimiter), quotes), starts, stops) + 1
        returns = _within(_outside(array, _RETURN, quotes), starts, stops)
        errors: dict[int, str] = {}
        for place in np.flatnonzero(block.too_long | (counts != len(self._header)) | (returns > 0)).tolist():
            if block.too_long[place]:
                errors[place] = too_long()
            elif returns[place]:
                errors[place] = "the row has a carriage return outside of quotes"
            else:
                noun = "field" if counts[place] == 1 else "fields"
                errors[place] = f"the row has {counts[place]} {noun}, and the header has {len(self._header)}"
        return errors

    def _arrays(self, text: bytes, rows: int) -> list[pa.Array]:
        if not rows or not self._names:
            return [pa.nulls(rows, pa.string()) for _ in self._names]
        places = [self._header.index(name) for name in self._names]
        arrays = _parsed(text, self._delimiter, len(self._header), places)
        if len(arrays[0]) != rows:
            raise Broken(
                f"{self._file.location}: the CSV parser found {len(arrays[0])} rows in a block of {rows} rows; write "
                "the file as JSON Lines or Parquet, and start again with another output folder"
            )
        return arrays


def _outside(array: NDArray[np.uint8], char: int, quotes: NDArray[np.int64]) -> NDArray[np.int64]:
    places = np.flatnonzero(array == char)
    return places[is_outside(places, quotes)]


def _within(places: NDArray[np.int64], starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many of the places lie in each row."""
    return np.searchsorted(places, stops) - np.searchsorted(places, starts)


def _fields(record: NDArray[np.uint8], delimiter: str) -> tuple[int, int]:
    quotes = real_quotes(record, ord(delimiter))
    return len(_outside(record, ord(delimiter), quotes)) + 1, len(_outside(record, _RETURN, quotes))


def _parsed(text: bytes, delimiter: str, columns: int, places: list[int]) -> list[pa.Array]:
    """The columns at those places, as strings that may be no UTF-8."""
    names = [str(place) for place in range(columns)]
    chosen = [str(place) for place in places]
    if not text.endswith(b"\n"):
        text += b"\n"  # without it an empty last field counts as quoted where one before it is
    table = arrow_csv.read_csv(
        pa.BufferReader(text),
        arrow_csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=names),
        arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        arrow_csv.ConvertOptions(
            check_utf8=False,
            column_types=dict.fromkeys(chosen, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            include_columns=chosen,
        ),
    )
    return [table.column(name).combine_chunks() for name in chosen]


def _spread(arrays: list[pa.Array], rows: int, errors: dict[int, str]) -> list[pa.Array]:
    """The same values with nulls where a row had an error."""
    bad = np.zeros(rows, np.bool_)
    bad[list(errors)] = True
    places = pa.array(np.cumsum(~bad) - 1, mask=bad)
    return [array.take(places) for array in arrays]
