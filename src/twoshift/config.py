"""Where files of settings lie, and how they are read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

from twoshift.errors import InvalidInput

__all__ = ["home", "naming_file", "read_toml"]


def home() -> Path:
    """The folder that holds what outlives a command: TWOSHIFT_HOME, or the platform's user data folder."""
    chosen = os.environ.get("TWOSHIFT_HOME", "").strip()
    if chosen:
        try:
            return Path(chosen).expanduser()
        except RuntimeError:
            raise InvalidInput(
                "TWOSHIFT_HOME", chosen, "the path of a folder: the user after ~ does not exist on this machine"
            ) from None
    import platformdirs  # slow enough to matter, and not needed when the variable is set

    return platformdirs.user_data_path("twoshift")


def read_toml(path: Path, field: str) -> dict[str, Any]:
    """What a TOML file holds; raises InvalidInput."""
    try:
        return msgspec.toml.decode(path.read_bytes())
    except OSError as error:
        raise InvalidInput(field, str(path), f"a file that can be read ({error.strerror})") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(field, str(path), f"a valid TOML file ({error})") from error


@contextlib.contextmanager
def naming_file(path: str | Path, overrides: Collection[str], keys: Collection[str] | None = None) -> Iterator[None]:
    """Errors about what a file says name it with their key; what an option says in its place keeps its name.

    With `keys`, other fields keep theirs, too.
    """
    try:
        yield
    except InvalidInput as error:
        first = error.field.partition(".")[0]
        if first in overrides or first.startswith("-") or not (keys is None or first in keys):
            raise
        raise error.renamed(f"{path}: {error.field}") from None
