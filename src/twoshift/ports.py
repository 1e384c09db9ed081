"""What the deciding code needs from the outside world, as Protocols; adapters live in the layers below the wiring."""

from __future__ import annotations

from typing import Protocol

from twoshift.policy.profile import Profile

__all__ = ["Profiles"]


class Profiles(Protocol):
    """Measured cost curves, by name."""

    def get(self, name: str) -> Profile:
        """The profile of that name; raises InvalidInput with the known names, Broken where it is damaged."""
        ...

    def put(self, profile: Profile) -> None:
        """Store it, replacing one of the same name; a reader sees the old or the new one, whole."""
        ...

    def names(self) -> list[str]:
        """The known names, sorted."""
        ...
