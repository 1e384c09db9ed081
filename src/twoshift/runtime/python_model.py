"""The user's own model: one small class, the same in both shifts.

    class Doubler:
        def load(self):                       # once, before the first row
            self.factor = 2.0

        def predict(self, batch):             # dict of arrays in, dict of arrays out; a row out for each row in
            return {"doubled": batch["x"] * self.factor}

Optional: `prepare(self, rows: list) -> dict[str, ndarray]` (it may run in several threads at once), or
`async def prepare(self, row) -> dict` (a lookup in a feature store, say: the rows of a request are awaited side by
side), `tokens(self, batch) -> list[int]` (what each row costs; 1 without it), `close(self)`, and the attributes
`outputs` (names of the columns), `example` (a row to warm up and measure with), `missing` (True: None among numbers
arrives as NaN), `max_row_tokens`, `device` and `precision` (for the profile's name).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import BrokenModel, InvalidInput, TooLarge, TwoshiftError
from twoshift.ports import Columns, RuntimeInfo
from twoshift.runtime.columns import ColumnRows, bad_row
from twoshift.runtime.devices import checked_device, cpu_device, usable_threads
from twoshift.runtime.host_model import HostModel, LookupModel
from twoshift.runtime.lookups import Lookups
from twoshift.runtime.python_source import call_user, contained, load_class

__all__ = ["load_python_model"]

_ANY_TOKENS = 2**31 - 1  # a model that counts tokens and names no limit has none


def load_python_model(
    model: str, *, device: str = "auto", precision: str | None = None, threads: int | None = None
) -> HostModel:
    """The class that `file.py:Class` or `package.module:Class` names, loaded."""
    checked_device(device)
    found, checksum = load_class(model)
    _check_class(found, model)
    user = call_user(model, f"create {found.__name__}()", found)
    call_user(model, "run load()", user.load)
    info = call_user(model, "provide its attributes", _info, user, model, checksum, threads)
    if precision not in (None, info.precision):
        raise InvalidInput("precision", precision, f"{info.precision}, the precision that {found.__name__} declares")
    if _looks_up(user):
        return LookupModel(info, _LookupUserModel(user, info))
    return HostModel(info, _UserModel(user, info))


def _looks_up(user: Any) -> bool:
    return inspect.iscoroutinefunction(getattr(user, "prepare", None))


def _info(user: Any, model: str, checksum: str, threads: int | None) -> RuntimeInfo:
    return RuntimeInfo(
        model=model,
        checksum=checksum,
        runtime="python",
        device=str(getattr(user, "device", None) or cpu_device(usable_threads(threads))),
        precision=str(getattr(user, "precision", "fp32")),
        max_row_tokens=_max_row_tokens(user, model),
        outputs=_outputs(user, model),
        example=getattr(user, "example", None),
        prepare_waits=hasattr(user, "tokens") or (hasattr(user, "prepare") and not _looks_up(user)),
    )


class _UserModel:
    """The user's object as a column model."""

    def __init__(self, user: Any, info: RuntimeInfo) -> None:
        self._user = user
        self._info = info
        self._prepares, self._counts = hasattr(user, "prepare"), hasattr(user, "tokens")
        self._missing = bool(getattr(user, "missing", False))

    def prepare(self, rows: Sequence[Any]) -> ColumnRows:
        if not rows:
            return ColumnRows({})  # nothing that the user's code should have to think of
        with contained(self._info.model, "prepare rows and count their tokens"):
            return self._columns(rows)

    def _columns(self, rows: Sequence[Any]) -> ColumnRows:
        if not self._prepares:
            return self._plain(rows)
        columns = self._prepared(list(rows))
        return ColumnRows(columns, self._lengths(columns, len(rows)))

    def _plain(self, rows: Sequence[Any]) -> ColumnRows:
        """The rows' fields as columns, with what the user says that each row costs."""
        plain = ColumnRows.from_rows(rows, missing=self._missing)
        if not self._counts:
            return plain
        return ColumnRows(plain.columns, self._lengths(plain.columns, len(rows)))

    def predict(self, columns: dict[str, NDArray[Any]]) -> Columns:
        with contained(self._info.model, "predict"):
            return self._user.predict(columns)

    def close(self) -> None:
        """Raises InvalidInput that says what the user's own code raised."""
        call_user(self._info.model, "close", self._leave)

    def _leave(self) -> None:
        if hasattr(self._user, "close"):
            self._user.close()

    def _prepared(self, rows: list[Any]) -> dict[str, NDArray[Any]]:
        try:
            columns = self._user.prepare(rows)
        except (TwoshiftError, MemoryError):
            raise
        except Exception as error:
            number, cause = self._guilty(rows, error)
            raise bad_row(
                number, None, rows[number], f"a row that the method prepare() accepts: {_told(cause)}"
            ) from cause
        return _checked_columns(columns, len(rows), self._info.model)

    def _guilty(self, rows: list[Any], error: Exception) -> tuple[int, Exception]:
        """The first row that fails alone, and how; the first row where only the whole fails."""
        for number, row in enumerate(rows):
            try:
                self._user.prepare([row])
            except Exception as alone:
                return number, alone
        return 0, error

    def _lengths(self, columns: Mapping[str, NDArray[Any]], rows: int) -> NDArray[np.int64]:
        if not self._counts:
            return np.ones(rows, np.int64)
        lengths = np.asarray(self._user.tokens(columns))
        if lengths.shape != (rows,) or lengths.dtype.kind not in "iu":
            given = f"an array of {lengths.dtype} with the shape {lengths.shape}"
            expected = f"an array of {rows} whole numbers of at least 1, one for each row"
            raise BrokenModel(f"{self._info.model}: tokens() returned {given}; expected {expected}")
        if rows and lengths.min() < 1:
            raise InvalidInput(
                f"{self._info.model}: result of tokens()", lengths.tolist(), f"{rows} whole numbers of at least 1"
            )
        if rows and lengths.max() > self._info.max_row_tokens:
            number = int(lengths.argmax())
            raise TooLarge(f"row {number}", f"{lengths[number]} tokens", f"at most {self._info.max_row_tokens} tokens")
        return lengths.astype(np.int64)


class _LookupUserModel(_UserModel):
    """A user's object whose rows are looked up first, one by one, on a loop of their own."""

    def __init__(self, user: Any, info: RuntimeInfo) -> None:
        super().__init__(user, info)
        self._lookups = Lookups(user.prepare)

    def lookup(self, rows: Sequence[Any]) -> Future[list[Any]]:
        return self._lookups.begin(rows, live=True)

    def looked_up(self, rows: Sequence[Any]) -> ColumnRows:
        """What was looked up, as columns."""
        with contained(self._info.model, "count tokens"):
            return self._plain(rows)

    def prepare(self, rows: Sequence[Any]) -> ColumnRows:
        return self.looked_up(self._lookups.begin(rows, live=False).result()) if rows else ColumnRows({})

    def close(self) -> None:
        leave = getattr(self._user, "close", None)
        is_async = inspect.iscoroutinefunction(leave)
        call_user(self._info.model, "close", self._lookups.close, leave if is_async else None)
        if not is_async:
            super().close()


def _check_class(found: type, model: str) -> None:
    lacking = [name for name in ("load", "predict") if not callable(getattr(found, name, None))]
    if lacking:
        has_no = " and no ".join(f"`{name}`" for name in lacking)
        raise InvalidInput("model", model, f"a class with the methods `load` and `predict`; this class has no {has_no}")
    needs = [
        name
        for name, parameter in _parameters(found)
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needs:
        raise InvalidInput(
            "model", model, f"a class that can be created without arguments; its constructor needs {', '.join(needs)}"
        )


def _parameters(found: type) -> list[tuple[str, inspect.Parameter]]:
    try:
        return list(inspect.signature(found).parameters.items())
    except (TypeError, ValueError):  # a class written in C may not say
        return []


def _outputs(user: Any, model: str) -> tuple[str, ...]:
    outputs = getattr(user, "outputs", ())
    names = () if isinstance(outputs, str) or not isinstance(outputs, Iterable) else tuple(outputs)
    if (outputs and not names) or not all(isinstance(name, str) for name in names):
        accepted = f"a class whose attribute `outputs` is a list of column names, not {outputs!r}"
        raise InvalidInput("model", model, accepted)
    return names


def _max_row_tokens(user: Any, model: str) -> int:
    most = getattr(user, "max_row_tokens", _ANY_TOKENS if hasattr(user, "tokens") else 1)
    if isinstance(most, bool) or not isinstance(most, int | np.integer) or most < 1:
        raise InvalidInput(
            "model", model, f"a class whose attribute `max_row_tokens` is a whole number of at least 1, not {most!r}"
        )
    return int(most)


def _checked_columns(columns: object, rows: int, model: str) -> dict[str, NDArray[Any]]:
    good = isinstance(columns, dict) and all(
        isinstance(name, str) and isinstance(array, np.ndarray) and array.shape[:1] == (rows,)
        for name, array in columns.items()
    )
    if not good or not columns:
        expected = f"a dict of arrays with {rows} rows each, one per input row"
        raise BrokenModel(f"{model}: prepare() returned {_shapes(columns)}; expected {expected}")
    return dict(columns)  # type: ignore[call-overload]


def _shapes(columns: object) -> str:
    if not isinstance(columns, dict):
        return f"a {type(columns).__name__}"
    found = (f"{name!r}: {getattr(array, 'shape', type(array).__name__)}" for name, array in columns.items())
    return f"{{{', '.join(found)}}}"


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
