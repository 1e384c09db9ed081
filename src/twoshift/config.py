"""Settings, read once at the edge: unknown keys are errors that name the nearest known one."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from twoshift.errors import InvalidInput

__all__ = ["home", "read_toml", "settings_of"]

T = TypeVar("T", bound=msgspec.Struct)


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


def read_toml(path: Path, field: str) -> dict[str, Any]:
    """What a TOML file holds; raises InvalidInput."""
    try:
        return msgspec.toml.decode(path.read_bytes())
    except OSError as error:
        raise InvalidInput(field, str(path), f"a file that can be read ({error.strerror})") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(field, str(path), f"TOML ({error})") from error


def settings_of(kind: type[T], data: dict[str, Any], where: str) -> T:
    """Plain values as settings; raises InvalidInput with the key, and the nearest known one for an unknown."""
    for key in data:
        if key not in kind.__struct_fields__:
            accepted = f"a known key, such as {_nearest(key, kind.__struct_fields__)}"
            raise InvalidInput(f"{where}: {key}", data[key], accepted)
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InvalidInput):  # ours, and it says it better
            raise error.__cause__ from None
        raise InvalidInput(where, data, str(error)) from error


def _nearest(key: str, known: tuple[str, ...]) -> str:
    """The known key that is meant: one that it begins, the longest that begins it, or one that looks like it."""
    longer = [name for name in known if name.startswith(key)]
    shorter = sorted((name for name in known if key.startswith(name)), key=len, reverse=True)
    near = [*longer, *shorter, *difflib.get_close_matches(key, known, 1, 0.4)]
    return near[0] if near else ", ".join(known)
