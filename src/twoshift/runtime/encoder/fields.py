"""The JSON files of a model folder, read as untrusted text: every value is checked before it is used."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any

import msgspec

from twoshift.errors import Broken, InvalidInput

__all__ = ["Fields", "decoded", "small_file"]

_LARGEST_BYTES = 64 << 20  # a config is kilobytes; a tokenizer.json is read by its own library
_LARGEST_COUNT = (1 << 31) - 1


class Fields:
    """One JSON object of a model folder; each getter names the file and the key when the value is wrong."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self.path = path
        self._values = values

    @classmethod
    def read(cls, path: Path) -> Fields:
        """The object in the file; raises InvalidInput where there is none, Broken where it is no JSON object."""
        values = decoded(path)
        if not isinstance(values, dict):
            raise Broken(f"{path} does not contain a JSON object; replace it with an intact copy of the file")
        return cls(path, values)

    @classmethod
    def read_if_there(cls, path: Path) -> Fields:
        """Like `read`, but an absent file is an empty object."""
        return cls.read(path) if path.is_file() else cls(path, {})

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def count(self, key: str, default: int | None = None, least: int = 1, most: int = _LARGEST_COUNT) -> int:
        """A whole number from `least` to `most`."""
        value = self._values.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise InvalidInput(f"{self.path}: {key}", value, f"a whole number from {least} to {most:,}")
        return value

    def number(self, key: str, default: float) -> float:
        """A number above 0 that a float can hold."""
        value = self._values.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
            raise InvalidInput(f"{self.path}: {key}", value, "a finite number above 0")
        return float(value)

    def text(self, key: str, default: str = "") -> str:
        """A string."""
        value = self._values.get(key)
        value = default if value is None else value
        if not isinstance(value, str):
            raise InvalidInput(f"{self.path}: {key}", value, "a string")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        value = self._values.get(key)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise InvalidInput(f"{self.path}: {key}", value, "true or false")
        return value

    def inner(self, key: str) -> Fields:
        """An object inside this one; empty where there is none."""
        value = self._values.get(key)
        value = {} if value is None else value
        if not isinstance(value, dict):
            raise InvalidInput(f"{self.path}: {key}", value, "a JSON object")
        return Fields(self.path, value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty where there is none."""
        value = self._values.get(key)
        value = [] if value is None else value
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise InvalidInput(f"{self.path}: {key}", value, "a list of texts")
        return tuple(value)

    def items(self) -> list[tuple[str, Any]]:
        """What the object holds, as it stands in the file."""
        return list(self._values.items())


def decoded(path: Path) -> Any:
    """The JSON in a file of a model folder."""
    try:
        return msgspec.json.decode(small_file(path))
    except FileNotFoundError:
        raise InvalidInput("model", str(path.parent), f"a model folder with {path.name} in it") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Broken(f"{path} is damaged ({error}); expected JSON") from error
    except OSError as error:
        raise Broken(f"{path} cannot be read: {error.strerror}") from error


def small_file(path: Path) -> bytes:
    """What a small file holds; raises Broken where it is no regular file or is not small, and OSError."""
    with open(path, "rb", opener=_open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Broken(f"{path} is not a regular file; expected a small JSON file")
        data = file.read(_LARGEST_BYTES + 1)  # its size may say anything
    if len(data) > _LARGEST_BYTES:
        raise Broken(f"{path} is over {_LARGEST_BYTES >> 20} MiB; expected a small JSON file")
    return data


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe's opening would wait for a writer
