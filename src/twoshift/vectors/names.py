"""How indexes are named: by the library that their suffix names."""

from __future__ import annotations

from twoshift.errors import InvalidInput

__all__ = ["LIBRARY_NAMES", "METRICS", "library_of"]

LIBRARY_NAMES = ("usearch", "faiss", "lance")
METRICS = ("cos", "ip", "l2")


def library_of(index: str) -> str:
    """The library of an index with that name; raises InvalidInput."""
    name, _, suffix = index.rstrip("/").rpartition("/")[2].rpartition(".")
    if suffix not in LIBRARY_NAMES or not name:
        accepted = (
            f"a name that ends with one of {', '.join(f'.{each}' for each in LIBRARY_NAMES)}, such as vectors.usearch"
        )
        raise InvalidInput("index", index, accepted)
    return suffix
