"""Registered models where a model is named: NAME, NAME:3 and NAME@prod become files on this machine."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from twoshift.config import home
from twoshift.errors import InvalidInput, NotFound, TryLater, TwoshiftError
from twoshift.registry.cache import ModelCache
from twoshift.registry.names import ModelRef, parse_ref
from twoshift.registry.records import Version
from twoshift.registry.store import Registry
from twoshift.units import parse_bytes
from twoshift.wiring.blob_stores import blobs_for

__all__ = [
    "LocalModel", "answers", "fetched", "found_version", "is_registered", "local_model", "model_cache", "pinned",
    "registry_at", "registry_location",
]  # fmt: skip

_CACHE = "100GB"
_logger = logging.getLogger("twoshift")

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model as the runtimes take it."""

    word: str  # a path, or whatever else names a model that is not registered
    name: str  # NAME:3 of a registered one
    folder: Path | None = None  # of a registered one
    registry: str = ""  # where it came from, if that answers


_SILENT_S = 60.0  # a registry that did not answer is not asked again
_silent_until_s = dict[str, float]()  # by location
_versions = dict[tuple[str, str], Version]()  # NAME:3 never means anything else


@dataclass(frozen=True, slots=True)
class _Found:
    """What a name means, and whether the registry itself has said so."""

    version: Version
    answered: bool


def registry_location(given: str | None = None) -> str:
    """What was given, TWOSHIFT_REGISTRY, or a folder in TWOSHIFT_HOME."""
    chosen = given or os.environ.get("TWOSHIFT_REGISTRY", "").strip() or str(home() / "registry")
    return chosen if "://" in chosen else str(Path(chosen).expanduser().absolute())


def registry_at(given: str | None = None) -> Registry:
    """The registry; raises InvalidInput where the location cannot be one."""
    location = registry_location(given)
    try:
        return Registry(location, blobs_for(location))
    except InvalidInput as error:
        raise error.renamed("registry") from None


def model_cache() -> ModelCache:
    """The verified versions on this machine."""
    chosen = os.environ.get("TWOSHIFT_MODEL_CACHE", "").strip() or _CACHE
    return _cache(home() / "model-cache", parse_bytes(chosen, "TWOSHIFT_MODEL_CACHE"))


@lru_cache(maxsize=8)  # it holds locks for as long as the process runs
def _cache(root: Path, limit_bytes: float) -> ModelCache:
    return ModelCache(root, limit_bytes)


def is_registered(word: str, registry: str | None = None) -> bool:
    """Whether the word names a registered model; a file or folder of the same name comes first."""
    ref = parse_ref(word)
    if ref is None or Path(word).expanduser().exists():
        return False
    return ref.is_explicit or _is_set_up(registry)


def _is_set_up(registry: str | None) -> bool:
    """Whether somebody uses a registry here: most bare words are misspelt files."""
    location = registry_location(registry)
    return "://" in location or Path(location, "registry.json").is_file()


def found_version(word: str, registry: str | None = None, note: Note = _logger.warning) -> Version | None:
    """The version that the word names; None where it is no registered model. Raises NotFound with the known ones."""
    found = _found(word, registry, note)
    return None if found is None else found.version


def pinned(word: str, registry: str | None = None, note: Note = _logger.warning) -> str:
    """NAME:3 of a registered model; any other word as it is."""
    version = found_version(word, registry, note)
    return word if version is None else version.ref


def answers(registry: str | None = None) -> bool:
    """Whether it is worth asking: it has not been silent just now."""
    return time.monotonic() >= _silent_until_s.get(registry_location(registry), 0.0)


def fetched(word: str, registry: str | None = None, note: Note = _logger.warning) -> str:
    """As `pinned`, with its files on this machine."""
    return local_model(word, registry, note=note, trust_pickle=True).name


def local_model(
    word: str,
    registry: str | None = None,
    *,
    trust_pickle: bool = False,
    note: Note = _logger.warning,
    progress: Callable[[float], None] | None = None,
) -> LocalModel:
    """The model's files on this machine, downloaded if they are not in the cache.

    Raises NotFound with the known ones, TryLater where the registry does not answer and the cache does not have it.
    """
    found = _found(word, registry, note)
    if found is None:
        return LocalModel(word, word)
    version, location = found.version, registry_location(registry)
    if version.needs_trust and not trust_pickle:
        accepted = (
            "--trust-pickle (trust_pickle=True), if you trust the author of the model: loading the model runs code "
            "from its files"
        )
        raise InvalidInput("model", version.ref, accepted)
    folder = model_cache().folder(version)
    if folder is None:
        note(f"Downloading {version.ref} from {location}: {version.size_bytes / 1e6:,.1f} MB")
        folder = _downloaded(version, registry, progress or (lambda _: None))
    name = str(folder) if version.entry == "." else str(folder / version.entry)
    return LocalModel(name, version.ref, folder, location if found.answered else "")


def _downloaded(version: Version, registry: str | None, progress: Callable[[float], None]) -> Path:
    return model_cache().fetch(version, registry_at(registry).damage.receive, progress)


def _found(word: str, registry: str | None, note: Note) -> _Found | None:
    ref = parse_ref(word)
    if ref is None or not is_registered(word, registry):
        return None
    location, cache = registry_location(registry), model_cache()
    if (version := _versions.get((location, word))) is not None:
        return _Found(version, answered=True)
    known = cache.recall(location, word)
    if known is not None and cache.folder(known) is None:
        known = None  # nothing to fall back to
    if known is not None and time.monotonic() < _silent_until_s.get(location, 0.0):
        return _Found(known, answered=False)
    try:
        version = _asked(ref, registry, known is not None)
    except TryLater as error:
        if known is None:
            raise
        _silent_until_s[location] = time.monotonic() + _SILENT_S
        why = str(error).partition("; try again")[0]
        note(f"The registry does not answer: {why}. Using {known.ref} from the verified cache.")
        return _Found(known, answered=False)
    for name in (word, version.ref):
        cache.remember(location, name, version)
    _versions[location, version.ref] = version
    return _Found(version, answered=True)


def _asked(ref: ModelRef, registry: str | None, is_known: bool) -> Version:
    store = registry_at(registry)
    try:
        return store.find(ref)
    except NotFound:
        if is_known and not store.exists:  # a drive that is not mounted, a bucket that was emptied
            raise TryLater(
                f"the registry at {store.root} does not exist at the moment; check that the disk is mounted", 30.0
            ) from None
        if not ref.is_explicit:
            raise _unknown_word(ref.name, store) from None
        raise


def _unknown_word(word: str, store: Registry) -> InvalidInput:
    """For a bare word, which may have been meant as anything."""
    from twoshift.runtime.load import check_named  # numpy comes with it

    known = "none"
    with suppress(TwoshiftError):
        known = ", ".join(store.names()) or known
    try:
        check_named(word)
    except InvalidInput as error:
        return type(error)("model", word, f"{error.accepted}; registered in {store.root}: {known}")
    return NotFound("model", word, f"a registered model: {known}")
