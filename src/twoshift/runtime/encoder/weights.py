"""Tensors from safetensors files, by name and checked against the shape that the config promises."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import Broken, InvalidInput, UnusableModel
from twoshift.extras import needed
from twoshift.runtime.encoder.fields import Fields
from twoshift.runtime.encoder.tensor_names import SAVE_AGAIN, check_finite, check_tensors, is_finite, is_spare

__all__ = ["Weights", "weight_files"]

_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "pytorch_model.pt")
_CONVERT = (
    "is a pickle file, which can run code when loaded; if you trust it, convert it to model.safetensors with Python: {}"
)
_ROOM = 8  # zeros over the size of the files
_FLOATS = ("F32", "F16", "BF16", "F64")


def weight_files(folder: Path, stem: str = "model") -> tuple[Path, ...]:
    """The safetensors files of a folder, whole or in shards; raises InvalidInput that says what is missing."""
    whole = folder / f"{stem}.safetensors"
    if whole.is_file():
        return (whole,)
    index = folder / f"{stem}.safetensors.index.json"
    if index.is_file():
        return _shards(index)
    pickles = [name for name in _PICKLES if (folder / name).exists()]
    if pickles:
        raise UnusableModel("model", str(folder / pickles[0]), _CONVERT.format(_saved_again(folder)))
    graphs = sorted(folder.rglob("*.onnx"))
    if graphs:
        raise UnusableModel(
            "model", str(folder), f"contains an ONNX graph and no safetensors; use the path of the file: {graphs[0]}"
        )
    raise InvalidInput("model", str(folder), f"a model folder with {whole.name} in it")


def _saved_again(folder: Path) -> str:
    """The line of Python that keeps everything that was saved, heads and dense layers among it."""
    root = next((each for each in (folder, folder.parent) if (each / "modules.json").is_file()), None)
    if root is not None:
        return f"import sentence_transformers as s; s.SentenceTransformer({str(root)!r}).save({str(root)!r})"
    saved = Fields.read_if_there(folder / "config.json").texts("architectures")
    kind = saved[0] if saved and saved[0].isidentifier() else "AutoModel"
    return f"import transformers as t; t.{kind}.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})"


def _shards(index: Path) -> tuple[Path, ...]:
    names = {name for _, name in Fields.read(index).inner("weight_map").items()}
    if not names or not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise Broken(f"{index} is damaged; expected file names under `weight_map`: copy the file again")
    missing = sorted(name for name in names if not (index.parent / name).is_file())
    if missing:
        raise InvalidInput("model", str(index.parent), f"a model folder with {', '.join(missing[:3])} in it")
    return tuple(index.parent / name for name in sorted(names))


class Weights:
    """The tensors of one model. Use `open_weights`; names are given without the wrapper's prefix (`bert.`)."""

    def __init__(self, opened: Sequence[tuple[Path, Any]], marker: str) -> None:
        self._files = {name: file for _, file in opened for name in file.keys()}  # noqa: SIM118 - no mapping
        self._where = opened[0][0]
        self._prefix = self._find_prefix(marker)
        self._read: set[str] = set()
        self._missing: list[str] = []
        self._room_bytes = _ROOM * sum(
            path.stat().st_size for path, _ in opened
        )  # for zeros in place of what is missing

    @classmethod
    @contextlib.contextmanager
    def open(cls, files: Sequence[Path], marker: str) -> Iterator[Weights]:
        """The tensors of these files; `marker` is a tensor that every such model has, whatever its prefix."""
        with contextlib.ExitStack() as stack:
            made = cls([(path, stack.enter_context(opened(path))) for path in files], marker)
            yield made
            made.check_none_missing()

    def check_none_missing(self) -> None:
        """Raise UnusableModel that names the first few that were asked for and are not there, and says how many."""
        check_tensors(self._where.parent, missing=self._missing)

    def check_all_read(self, also: Collection[str] = ()) -> None:
        """Raise UnusableModel where a tensor of the network was not read: the config describes another network.

        `also` are names that somebody else has read.
        """
        unread = self._files.keys() - self._read - set(also)
        unexpected = [name for name in unread if not self._is_spare(name)]
        check_tensors(self._where.parent, missing=self._missing, unexpected=unexpected)

    @property
    def read(self) -> frozenset[str]:
        """The names that were read so far, as the file has them."""
        return frozenset(self._read)

    def _is_spare(self, stored: str) -> bool:
        return is_spare(stored.removeprefix(self._prefix))

    def get(self, name: str, *shape: int) -> NDArray[np.float32]:
        """The tensor in fp32, zeros where it is missing; raises InvalidInput where its shape is not the config's."""
        stored = self._stored(name)
        if stored is None:
            return self._without(name, shape)
        self._read.add(stored)
        held = self._files[stored].get_slice(stored)
        if tuple(held.get_shape()) != shape:
            check_tensors(self._where.parent, misshapen=[(stored, held.get_shape(), shape)])
        if held.get_dtype() not in _FLOATS:
            raise InvalidInput(f"{self._where}: {stored}", held.get_dtype(), f"the type {' or '.join(_FLOATS)}")
        if held.get_dtype() == "BF16":
            needed("ml_dtypes", "encoder", str(self._where))  # its import teaches numpy the type
        values = np.asarray(self._files[stored].get_tensor(stored)).astype(np.float32, copy=False)
        check_finite(self._where.parent, [] if is_finite(values) else [stored])
        return values

    def _without(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Go on, so that all that is missing is named at once; not for much more than the files hold."""
        self._missing.append(name)
        self._room_bytes -= 4 * math.prod(shape)
        if self._room_bytes < 0:
            check_tensors(self._where.parent, missing=self._missing, or_more=True)
        return np.zeros(shape, np.float32)

    def _stored(self, name: str) -> str | None:
        # The head of a classifier stands beside the wrapped model, not in it; gamma and beta are BERT's first names.
        old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        known = (self._prefix + name, name, self._prefix + old, old)
        return next((each for each in known if each in self._files), None)

    def _find_prefix(self, marker: str) -> str:
        found = sorted((name for name in self._files if name == marker or name.endswith(f".{marker}")), key=len)
        if not found:
            raise UnusableModel("model", str(self._where), f"has no weight {marker}; {SAVE_AGAIN}")
        return found[0].removesuffix(marker)


def opened(path: Path) -> Any:
    """The file, with its header checked; raises Broken where it is damaged or cut short."""
    safetensors = needed("safetensors", "encoder", str(path))
    try:
        return safetensors.safe_open(str(path), "numpy")
    except OSError as error:
        raise Broken(f"{path} cannot be read: {error}") from error
    except safetensors.SafetensorError as error:
        size = path.stat().st_size
        raise Broken(
            f"{path} ({size} bytes) is not a complete safetensors file ({error}); it is truncated or damaged: copy it "
            "again"
        ) from error
