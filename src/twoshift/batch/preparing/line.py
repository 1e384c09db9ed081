"""What a worker needs of a preparing process, and that of its worker, wherever they run: messages, and arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from twoshift.batch.preparing.messages import FromPreparer, Submitted, ToPreparer
from twoshift.ports import Columns

__all__ = ["BlockMemory", "PreparerLine", "PutBlock", "Unfit"]


class Unfit(Exception):
    """A process that runs, and can do nothing for this worker; no shard is to blame."""


class PreparerLine(Protocol):
    """A preparing process that was started, from its worker's side. All raise OSError or EOFError where it is gone."""

    def wait_for_room(self) -> None:
        """Until it runs; raises Unfit."""
        ...

    def begin(self, given: bytes) -> None:
        """A Given, pickled; raises Unfit."""
        ...

    def send(self, message: ToPreparer | None) -> None:
        """None: it shall end, once it has given up what it has in work."""
        ...

    def receive(self) -> FromPreparer:
        """What it says next."""
        ...

    def rows_of(self, block: Submitted) -> Columns:
        """A block's arrays; they do not change any more."""
        ...

    def put_results(self, block: Submitted, columns: Columns) -> Any:
        """As an Answered has them."""
        ...

    def kill(self) -> None:
        """Whatever it does, or whether it runs at all."""
        ...

    def ending(self) -> str:
        """How it came to its end, once it is gone."""
        ...

    def close(self) -> None:
        """Let it go; it ends by that."""
        ...


@dataclass(frozen=True, slots=True)
class PutBlock:
    """A block's rows where the worker finds them."""

    arrays: Any  # as a Submitted has them
    room: tuple[int, int] | None  # for its results
    held: Any  # to be given back with it


class BlockMemory(Protocol):
    """Arrays between a preparing process and its worker, from inside; any thread may call it."""

    def put(self, columns: Columns, result_bytes: int) -> PutBlock:
        """Rows, and room for results of that size; waits where too many are on their way."""
        ...

    def results(self, columns: Any) -> dict[str, NDArray[Any]]:
        """The arrays of an Answered; they do not change any more."""
        ...

    def give_back(self, block: PutBlock) -> None:
        """It is answered, and its results are read."""
        ...
