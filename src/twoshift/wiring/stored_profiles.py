"""What calls of a model cost, as it was measured and stored."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from twoshift.config import home
from twoshift.errors import Broken, TwoshiftError
from twoshift.policy.cost import CallCost
from twoshift.policy.plan.row import RowSize
from twoshift.policy.profile import Profile, profile_name
from twoshift.policy.threads import ThreadPlan
from twoshift.ports import Profiles, Runtime, RuntimeInfo
from twoshift.registry.names import parse_ref
from twoshift.store.profiles import FileProfiles, decode_profile, encode_profile
from twoshift.wiring.registered_models import registry_at

__all__ = [
    "keep_profile",
    "profile_name_of",
    "profile_of",
    "profiles",
    "share_profile",
    "stored_cost",
    "stored_profile",
]


def profiles() -> Profiles:
    """The profiles under TWOSHIFT_HOME."""
    return FileProfiles(home() / "profiles")


def profile_name_of(info: RuntimeInfo) -> str:
    """The name of the profile of a model as it is loaded."""
    from twoshift.runtime.load import KNOWN_MODELS  # numpy comes with it, and plans need none

    checksum = "" if info.model in KNOWN_MODELS else info.checksum
    return profile_name(info.model, info.runtime, info.device, info.precision, checksum)


def stored_profile(info: RuntimeInfo) -> Profile | None:
    """What was measured of these very weights on this device; None where nothing was, or it cannot be read."""
    found = None
    with suppress(TwoshiftError):
        found = profiles().get(profile_name_of(info))
    if found is not None and found.checksum == info.checksum:
        return found
    return _travelled_profile(info) if info.registry else None


def stored_cost(runtime: Runtime) -> CallCost | None:
    """What `twoshift profile` measured of this model here; None where nothing was."""
    found = stored_profile(runtime.info)
    return found.cost if found else None


def profile_of(
    info: RuntimeInfo, cost: CallCost, row: RowSize, samples: int, threads: ThreadPlan | None = None
) -> Profile:
    """A curve that was measured just now, under the name by which `stored_profile` finds it."""
    return Profile(
        name=profile_name_of(info),
        cost=cost,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        samples=samples,
        row=row,
        model=info.model,
        runtime=info.runtime,
        device=info.device,
        precision=info.precision,
        checksum=info.checksum,
        parity=info.parity,
        threads=threads,
    )


def keep_profile(profile: Profile, note: Callable[[str], None], registry: str = "") -> None:
    """For the next start, and with a registered version for other machines with such a device.

    A server whose home is full measures again then.
    """
    share_profile(profile, registry)
    try:
        profiles().put(profile)
    except Broken as error:
        note(f"The profile could not be stored, so the next start will measure again: {error}")


def share_profile(profile: Profile, registry: str) -> None:
    """Keep it beside its registered version, unless one of such a device is there; a registry may be read-only."""
    ref = parse_ref(profile.model)
    if registry and ref is not None and ref.version is not None:
        with suppress(TwoshiftError):
            registry_at(registry).profiles.keep(ref, _device_key(profile), encode_profile(profile))


def _travelled_profile(info: RuntimeInfo) -> Profile | None:
    """What another machine with such a device has measured of a registered version."""
    ref = parse_ref(info.model)
    if ref is None:
        return None
    with suppress(TwoshiftError):
        data = registry_at(info.registry).profiles.get(ref, _device_key(info))
        found = None if data is None else decode_profile(data, f"of {info.model} in {info.registry}")
        if found is not None and (found.checksum, found.device) == (info.checksum, info.device):
            found = replace(found, name=profile_name_of(info))
            profiles().put(found)
            return found
    return None


def _device_key(of: Profile | RuntimeInfo) -> str:
    return profile_name("on", of.runtime, of.device, of.precision)
