"""scikit-learn estimators: saved with skops, or pickled by somebody the user trusts."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import Broken, InvalidInput, TwoshiftError
from twoshift.extras import needed
from twoshift.ports import Columns, RuntimeInfo
from twoshift.runtime.artifacts import checksum_of_files, full_file
from twoshift.runtime.columns import ColumnRows, array_of, bad_row
from twoshift.runtime.devices import cpu_only
from twoshift.runtime.features import FEATURES, Features
from twoshift.runtime.sklearn_threads import EstimatorThreads
from twoshift.runtime.threaded_model import ThreadedModel, Threads
from twoshift.types import Tensor

__all__ = ["load_pickle", "load_skops"]

TEXT = "text"
_BOMB_BYTES = 1 << 30
_BOMB_RATIO = 200


def load_skops(
    path: Path,
    *,
    device: str = "auto",
    precision: str | None = None,
    trust_pickle: bool = False,
    threads: int | None = None,
) -> ThreadedModel:
    """An estimator saved with skops; types that skops does not vouch for need the user's word."""
    _refuse_others(device, precision)
    _check_archive(full_file(path))
    used = Threads(threads)
    needed("sklearn", "sklearn", str(path))
    skops = needed("skops.io", "sklearn", str(path))
    untrusted = list(_read(path, skops.get_untrusted_types, file=path))
    if untrusted and not trust_pickle:
        raise InvalidInput("model", str(path), _untrusted_hint(untrusted))
    return _runtime(path, _read(path, skops.load, path, trusted=untrusted), used)


def load_pickle(
    path: Path,
    *,
    device: str = "auto",
    precision: str | None = None,
    trust_pickle: bool = False,
    threads: int | None = None,
) -> ThreadedModel:
    """A pickled or joblib-dumped estimator, only where the user trusts this very file."""
    if not trust_pickle:
        raise InvalidInput(
            "model",
            str(path),
            "--trust-pickle (trust_pickle=True) for a pickle, if you trust the author of the file: loading a pickle "
            "can run any code. Safer formats: skops.io.dump(model, 'model.skops'), or XGBoost's "
            "save_model('model.ubj')",
        )
    _refuse_others(device, precision)
    full_file(path)
    used = Threads(threads)
    try:
        estimator = _unpickled(path)
    except InvalidInput:
        raise
    except Exception as error:  # a pickle can raise anything
        raise Broken(f"{path} cannot be loaded as a pickled estimator: {_told(error)}") from error
    return _runtime(path, estimator, used)


def _read(path: Path, function: Any, *arguments: Any, **options: Any) -> Any:
    try:
        return function(*arguments, **options)
    except Exception as error:  # a hostile file can make skops raise anything
        raise Broken(f"{path} cannot be loaded as an estimator saved with skops.io.dump: {_told(error)}") from error


def _unpickled(path: Path) -> Any:
    if path.suffix == ".joblib":
        return needed("joblib", "sklearn", str(path)).load(path)
    with path.open("rb") as file:
        return pickle.load(file)  # noqa: S301 -- the user vouched for this file


def _runtime(path: Path, estimator: Any, threads: Threads) -> ThreadedModel:
    if not callable(getattr(estimator, "predict", None)) and not callable(getattr(estimator, "transform", None)):
        raise InvalidInput(
            "model",
            str(path),
            f"an estimator with the method `predict` or `transform`; the file holds a {type(estimator).__name__}",
        )
    try:
        model = _Estimator(estimator, str(path))
    except TwoshiftError:
        raise
    except Exception as error:  # its attributes may hold anything
        raise Broken(f"{path} contains an estimator that is incomplete or not fitted: {_told(error)}") from error
    info = RuntimeInfo(
        model=str(path),
        checksum=checksum_of_files([path]),
        runtime="sklearn",
        device=threads.device,
        precision="fp64",
        max_row_tokens=1,
        outputs=model.outputs,
        inputs=model.inputs,
        example=model.example,
        is_ordered=model.is_ordered,
        features=model.names or (),
        classes=model.classes,
    )
    return ThreadedModel(info, model, threads)


class _Estimator:
    """An estimator as a column model: `prediction`, `probabilities` where it has them, or `transformed`."""

    def __init__(self, estimator: Any, path: str) -> None:
        self._estimator, self._threads = estimator, EstimatorThreads(estimator, path)
        self._first = _first_step(estimator)
        self._allows_nan, self._takes_text = _tags(self._first)
        names = getattr(estimator, "feature_names_in_", None)
        self.names = None if names is None else tuple(map(str, names))
        self._pandas = None if names is None else needed("pandas", "sklearn", path)
        self._width = _width(estimator, self._first, path) if not self._takes_text and names is None else 0
        self.outputs = _outputs(estimator)
        has_classes = "probabilities" in self.outputs
        self.classes = {"probabilities": tuple(map(str, estimator.classes_))} if has_classes else {}
        self.is_ordered = names is None and not self._takes_text
        self.inputs, self.example = self._takes()

    def _takes(self) -> tuple[tuple[Tensor, ...], Any]:
        """What a row has, and one, if it can be made up."""
        if self._takes_text:
            return (Tensor(TEXT, "text"),), "an old road"
        if self.names is not None:
            return tuple(Tensor(name, "float64") for name in self.names), self._zeros(self.names)
        return (Tensor(FEATURES, "float64", (self._width,)),), [0.0] * self._width

    def _zeros(self, names: Sequence[str]) -> dict[str, float] | None:
        """A row of zeros, where the estimator takes it: columns may hold texts as well."""
        row = dict.fromkeys(names, 0.0)
        try:
            self.predict(self.prepare([row]).columns)
        except Exception:  # an estimator may raise anything
            return None
        return row

    def prepare(self, rows: Sequence[Any]) -> ColumnRows:
        if self._takes_text:
            return ColumnRows({TEXT: array_of(_texts(rows), TEXT)})
        if self.names is not None:
            prepared = ColumnRows.from_rows(rows, self.names, self._allows_nan)
        else:
            prepared = Features(None, self._width, missing=self._allows_nan, dtype=np.float64).prepare(rows)
        if not self._allows_nan:
            _refuse_nan(prepared)
        return prepared

    def use_threads(self, threads: int) -> None:
        self._threads.use(threads)

    def predict(self, columns: dict[str, NDArray[Any]]) -> Columns:
        given = self._given(columns)
        with self._threads.limited():
            return {name: _dense(getattr(self._estimator, method)(given)) for name, method in self._methods()}

    def _given(self, columns: dict[str, NDArray[Any]]) -> Any:
        if self._takes_text:
            return columns[TEXT]
        return columns[FEATURES] if self._pandas is None else self._pandas.DataFrame(columns)

    def _methods(self) -> list[tuple[str, str]]:
        return [(name, _METHODS[name]) for name in self.outputs]


_METHODS = {"prediction": "predict", "probabilities": "predict_proba", "transformed": "transform"}


def _outputs(estimator: Any) -> tuple[str, ...]:
    if not hasattr(estimator, "predict"):
        return ("transformed",)
    several = isinstance(getattr(estimator, "classes_", None), list)  # a list of classes for each of several labels
    return ("prediction", "probabilities") if hasattr(estimator, "predict_proba") and not several else ("prediction",)


def _first_step(estimator: Any) -> Any:
    steps = getattr(estimator, "steps", None)
    return _first_step(steps[0][1]) if steps else estimator


def _tags(first: Any) -> tuple[bool, bool]:
    """Whether the estimator takes NaN, and whether it takes texts instead of numbers."""
    tags = getattr(first, "__sklearn_tags__", None)
    if tags is None:
        return False, False
    given = tags().input_tags
    return bool(given.allow_nan), bool(given.string and not given.two_d_array)


def _width(estimator: Any, first: Any, path: str) -> int:
    width = getattr(estimator, "n_features_in_", None) or getattr(first, "n_features_in_", None)
    if width is None:
        raise InvalidInput("model", path, "a fitted estimator: this estimator has no attribute `n_features_in_`")
    if not isinstance(width, int | np.integer) or width < 1:
        raise Broken(f"{path}: `n_features_in_` is {str(width)[:80]!r}; expected a whole number of features")
    return int(width)


def _texts(rows: Sequence[Any]) -> list[Any]:
    texts = [row.get(TEXT) if isinstance(row, Mapping) else row for row in rows]
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise bad_row(number, TEXT, rows[number], f"a text, or a dict with {TEXT!r}")
    return texts


def _refuse_nan(prepared: ColumnRows) -> None:
    for name, array in prepared.columns.items():
        if array.dtype.kind == "f" and np.isnan(array).any():
            row = int(np.argwhere(np.isnan(array))[0][0])
            raise bad_row(row, name, array[row], "a value: this model does not accept missing values")


def _dense(result: Any) -> NDArray[Any]:
    return np.asarray(result.toarray() if hasattr(result, "toarray") else result)


def _refuse_others(device: str, precision: str | None) -> None:
    cpu_only(device, "a scikit-learn model")
    if precision not in (None, "fp64"):
        raise InvalidInput("precision", precision, "fp64: scikit-learn computes in fp64")


def _check_archive(path: Path) -> None:
    """Whether it is a whole skops archive that does not swell when it is opened; raises Broken."""
    try:
        with zipfile.ZipFile(path) as archive:
            swollen = sum(entry.file_size for entry in archive.infolist())
            if "schema.json" not in archive.namelist():
                raise Broken(f"{path} is not a skops archive: the archive contains no schema.json")
            damaged = None if swollen > _BOMB_BYTES else archive.testzip()
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError, ValueError, OSError) as error:
        raise Broken(f"{path} is not a complete skops archive, which is a zip file: {_told(error)}") from error
    if damaged is not None:
        raise Broken(f"{path} is not a complete skops archive: {damaged} in this archive is damaged")
    if swollen > _BOMB_BYTES and swollen > _BOMB_RATIO * path.stat().st_size:
        size = f"the archive has {path.stat().st_size:,} bytes and unpacks to {swollen:,} bytes"
        raise Broken(f"{path}: {size}; the file is refused, because it may be a zip bomb")


def _untrusted_hint(types: list[str]) -> str:
    named = ", ".join(types[:8]) + (f" and {len(types) - 8} more" if len(types) > 8 else "")
    return (
        f"a file with only types that cannot run code when loaded; this file holds {named}. If you trust the author "
        "of the file, use --trust-pickle (trust_pickle=True)"
    )


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
