"""The only module that names concrete adapters."""

from __future__ import annotations

from twoshift.config import home
from twoshift.ports import Profiles

__all__ = ["profiles"]


def profiles() -> Profiles:
    """The profiles under TWOSHIFT_HOME."""
    from twoshift.store.profiles import FileProfiles

    return FileProfiles(home() / "profiles")
