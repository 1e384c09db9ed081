"""The profile on disk while its model is served: a curve from a busy moment heals there, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from threading import Event

from twoshift.closable_thread import ClosableThread
from twoshift.errors import InvalidInput, TwoshiftError
from twoshift.policy.cost import CallCost
from twoshift.policy.profile import Profile, healed_profile, relearned_profile
from twoshift.ports import Profiles
from twoshift.types import CallSize

__all__ = ["ProfileKeeper", "StepProfileKeeper"]

_EVERY_S = 60.0  # at most one write


class ProfileKeeper:
    """Stores a profile again where the device is quicker, or for long far slower; a slow spell is never stored."""

    def __init__(self, began: Profile, usual_pace: Callable[[], float], profiles: Profiles) -> None:
        """`usual_pace` says how long a call takes usually, as a share of what `began` says."""
        self._began, self._usual_pace, self._profiles = began, usual_pace, profiles
        self._known_at = began.created_at  # the profile that was stored last, as far as is known here
        self._thread = ClosableThread(self._follow, "twoshift-profile")

    def start(self) -> None:
        """Look every minute, until it is closed."""
        self._thread.start()

    def look(self) -> None:
        """Write it, if that is worth it."""
        try:
            stored = self._stored()
            if stored.checksum != self._began.checksum:
                return  # of another version by now
            can_slow = stored.created_at == self._known_at  # else somebody has measured since, in a better moment
            healed = self._healed(stored, can_slow)
            if healed is not None:
                self._profiles.put(healed)
                self._known_at = healed.created_at
        except TwoshiftError:  # a disk may be full: nothing but the next start depends on it
            return

    def close(self) -> None:
        """A last look."""
        self._thread.close()
        self.look()

    def _stored(self) -> Profile:
        return self._profiles.get(self._began.name)

    def _healed(self, stored: Profile, can_slow: bool) -> Profile | None:
        return healed_profile(stored, self._began.cost.scaled(self._usual_pace()), _now(), can_slow)

    def _follow(self, closed: Event) -> None:
        while not closed.wait(_EVERY_S):
            self.look()


class StepProfileKeeper(ProfileKeeper):
    """The same of a language model's steps: stores the curves as learned, wherever they say something else by now.

    A server begins where the last one ended; what was only a guess is stored once something was learned.
    """

    def __init__(
        self,
        began: Profile,
        learned: Callable[[], tuple[CallCost | None, CallCost | None]],
        sizes: Sequence[CallSize],
        profiles: Profiles,
    ) -> None:
        """`learned`: curves of steps beside jobs and of live ones alone; `sizes`: steps by which they are compared."""
        super().__init__(began, lambda: 1.0, profiles)
        self._learned, self._sizes = learned, sizes

    def _stored(self) -> Profile:
        try:
            return super()._stored()
        except InvalidInput:
            if self._began.samples:
                raise  # somebody has removed it
            return self._began

    def _healed(self, stored: Profile, can_slow: bool) -> Profile | None:
        return relearned_profile(stored, self._learned(), self._sizes, _now(), can_slow)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
