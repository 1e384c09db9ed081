"""Every index library by its name."""

from __future__ import annotations

from twoshift.vectors.faiss_library import FaissLibrary
from twoshift.vectors.lance_library import LanceLibrary
from twoshift.vectors.library import IndexLibrary
from twoshift.vectors.usearch_library import UsearchLibrary

__all__ = ["LIBRARIES"]

LIBRARIES: dict[str, IndexLibrary] = {
    "usearch": UsearchLibrary(),
    "faiss": FaissLibrary(),
    "lance": LanceLibrary(),
}
