"""What calls of a model cost, as it was measured and stored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from twoshift.config import home
from twoshift.errors import Broken, TwoshiftError
from twoshift.policy.cost import CallCost
from twoshift.policy.plan.row import RowSize
from twoshift.policy.profile import Profile, profile_name
from twoshift.policy.threads import ThreadPlan
from twoshift.ports import Profiles, Runtime, RuntimeInfo
from twoshift.store.profiles import FileProfiles

__all__ = ["keep_profile", "profile_name_of", "profile_of", "profiles", "stored_cost", "stored_profile"]


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
    try:
        found = profiles().get(profile_name_of(info))
    except TwoshiftError:
        return None
    return found if found.checksum == info.checksum else None


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


def keep_profile(profile: Profile, note: Callable[[str], None]) -> None:
    """For the next start; a server whose home is full measures again then."""
    try:
        profiles().put(profile)
    except Broken as error:
        note(f"The profile could not be stored, so the next start will measure again: {error}")
