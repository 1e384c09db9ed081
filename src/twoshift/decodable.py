"""Structures that several threads may decode.

msgspec looks at the fields of a structure when it is first decoded. Where they are structures themselves, a second
thread that decodes it meanwhile ends the process (msgspec 0.22). So the fields are looked at as the class is declared.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

__all__ = ["decodable"]

_T = TypeVar("_T")


def decodable(kind: type[_T]) -> type[_T]:
    """A class that is given to `decode`, `convert` or `settings_of`."""
    msgspec.json.Decoder(kind)
    return kind
