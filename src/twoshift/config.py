"""Settings, read once at the edge."""

from __future__ import annotations

import os
from pathlib import Path

from twoshift.errors import InvalidInput

__all__ = ["home"]


def home() -> Path:
    """The folder that holds what outlives a command: TWOSHIFT_HOME, or the platform's user data folder."""
    chosen = os.environ.get("TWOSHIFT_HOME", "").strip()
    if chosen:
        try:
            return Path(chosen).expanduser()
        except RuntimeError:
            raise InvalidInput("TWOSHIFT_HOME", chosen, "a folder; there is no such user") from None
    import platformdirs  # slow enough to matter, and not needed when the variable is set

    return platformdirs.user_data_path("twoshift")
