"""An input file: where it is, what it was when it was listed, and how its rows are written."""

from __future__ import annotations

import msgspec

from twoshift.batch.inputs.piece import END, Piece
from twoshift.errors import InvalidInput

__all__ = ["FORMATS", "Constant", "InputFile", "InputTable", "known_encoding", "named_encoding"]

_SUFFIXES = {
    "parquet": (".parquet", ".pq"),
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "csv": (".csv",),
    "tsv": (".tsv",),
    "arrow": (".arrow", ".feather", ".ipc", ".arrows"),
}
_COMPRESSIONS = {".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2", ".xz": "xz"}
_FORMAT_OF = {suffix: name for name, suffixes in _SUFFIXES.items() for suffix in suffixes}
FORMATS = tuple(_SUFFIXES)
_KNOWN = (
    f"a file that ends in {', '.join(_FORMAT_OF)} (all but Parquet also with .gz, .zst, .bz2 or .xz after it), "
    f"or --input-format with one of {', '.join(FORMATS)}"
)


class Constant(msgspec.Struct, frozen=True):
    """A column that is not in a file: the same in all of its rows, as its table says."""

    name: str
    type: str  # as Arrow names it
    value: str | None


class InputTable(msgspec.Struct, frozen=True):
    """A table at one version, by which a resume reads the same rows."""

    location: str
    kind: str  # "delta" or "iceberg"
    version: int  # of Iceberg: the snapshot
    metadata: str = ""  # of Iceberg: the file that tells of it


class InputFile(msgspec.Struct, frozen=True):
    """One file of a job's input."""

    location: str
    size_bytes: int
    identity: str  # another one means that the file was changed
    format: str  # one of FORMATS
    compression: str | None = None  # around the whole file: "gzip", "zstd", "bz2", "xz"
    fingerprint: str = ""  # of its content, where it has one: the same under another identity is no change
    constants: tuple[Constant, ...] = ()
    table: InputTable | None = None  # that it is a file of

    @property
    def is_text(self) -> bool:
        """Whether it is lines of text, so that only a look at them tells how many rows there are."""
        return self.format in ("jsonl", "csv", "tsv")

    @property
    def is_cut_by_bytes(self) -> bool:
        """Whether its pieces are ranges of bytes; of rows where not."""
        return self.is_text and self.compression is None

    def whole(self, index: int = 0, rows: int | None = None, size_bytes: int | None = None) -> Piece:
        """The whole file as one piece."""
        stop = self.size_bytes if self.is_cut_by_bytes else END if rows is None else rows
        return Piece(index, 0, stop, rows, self.size_bytes if size_bytes is None else size_bytes)

    def head(self) -> Piece:
        """A piece whose first batches are the file's first rows; reading is lazy, so take as many as you want."""
        return self.whole()


def known_encoding(name: str) -> tuple[str, str | None] | None:
    """Format and compression by a file's name, None where its suffix is not known."""
    lower = name.lower()
    compression = next((kind for suffix, kind in _COMPRESSIONS.items() if lower.endswith(suffix)), None)
    stem = lower.rpartition(".")[0] if compression else lower
    kind = _FORMAT_OF.get("." + stem.rpartition(".")[2]) if "." in stem else None
    return None if kind is None or (kind == "parquet" and compression) else (kind, compression)


def named_encoding(location: str, kind: str | None) -> tuple[str, str | None]:
    """Format and compression of a file, `kind` taking precedence over its suffix; raises InvalidInput."""
    if kind is None:
        found = known_encoding(location)
        if found is None:
            raise InvalidInput("inputs", location, _KNOWN)
        return found
    found = known_encoding("x." + kind)
    if found is None:
        raise InvalidInput(
            "format",
            kind,
            f"one of {', '.join(FORMATS)}; for a compressed file, a value such as jsonl.gz (not for parquet)",
        )
    suffix = "." + location.lower().rpartition(".")[2]
    return found[0], found[1] or (None if found[0] == "parquet" else _COMPRESSIONS.get(suffix))
