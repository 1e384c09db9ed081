"""Rows that came as columns: they stay that way until somebody wants one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

from numpy.typing import NDArray

__all__ = ["Table"]


class Table(Sequence[dict[str, Any]]):
    """A sequence of dicts whose fields lie in one array each, as `runtime.columns.array_of` makes them.

    There is at least one column, and all have as many rows.
    """

    __slots__ = ("_rows", "columns")

    def __init__(self, columns: Mapping[str, NDArray[Any]]) -> None:
        self.columns = columns
        self._rows = len(next(iter(columns.values())))

    def __repr__(self) -> str:
        return repr(list(self))

    def __len__(self) -> int:
        return self._rows

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, at: slice) -> Table: ...

    def __getitem__(self, at: int | slice) -> dict[str, Any] | Table:
        if isinstance(at, slice):
            return Table({name: values[at] for name, values in self.columns.items()})
        return {name: _plain(values[at]) for name, values in self.columns.items()}


def _plain(value: Any) -> Any:
    """A number as Python has it, a list of texts; arrays of numbers stay."""
    return value.tolist() if hasattr(value, "tolist") and (not value.shape or value.dtype.kind == "O") else value
