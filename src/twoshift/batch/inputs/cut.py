"""From files to shards: large files become many, small ones share one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from twoshift.batch.inputs.arrow_ipc import arrow_pieces
from twoshift.batch.inputs.file import InputFile
from twoshift.batch.inputs.parquet import parquet_pieces
from twoshift.batch.inputs.piece import Piece, Shard, ShardTarget
from twoshift.batch.inputs.text import text_pieces
from twoshift.ports import Blobs

__all__ = ["cut"]

_OPENED_AT_ONCE = 8
_FEW_FILES = 1000  # so many are all looked into; of more only those that matter
_COUNTED_BYTES = 4 << 20  # a text of up to that is counted in a moment
_TINY_SHARE = 1 / 64
_TEXT_RATIO = 4  # how much compression is thought to save, where nobody has looked
_MOST_PIECES = 1000  # of a shard: each is a file to open


def cut(files: Sequence[InputFile], blobs_for: Callable[[str], Blobs], target: ShardTarget) -> tuple[Shard, ...]:
    """The shards of an input, in order; raises InvalidInput and Broken where a file cannot be used."""
    few = len(files) <= _FEW_FILES
    tiny_bytes = _TINY_SHARE * target.piece_bytes
    # 100,000 tiny files are planned by their listing alone
    looked_into = [few or _unpacked_bytes(file) > tiny_bytes for file in files]

    def pieces(index: int) -> list[Piece]:
        return _split(index, files[index], blobs_for(files[index].location), target)

    with ThreadPoolExecutor(_OPENED_AT_ONCE) as opening:
        found = opening.map(pieces, [index for index, looked in enumerate(looked_into) if looked])
        lists = (next(found) if looked else _whole(index, files[index]) for index, looked in enumerate(looked_into))
        return tuple(_shards((piece for some in lists for piece in some), target))


def _split(index: int, file: InputFile, blobs: Blobs, target: ShardTarget) -> list[Piece]:
    """One file's pieces, none for an empty one; `index` is its place in the list of files."""
    if file.size_bytes == 0:
        return []
    if file.format == "parquet":
        return parquet_pieces(index, file, blobs, target)
    if file.format == "arrow":
        return arrow_pieces(index, file, blobs, target)
    small = file.size_bytes <= _COUNTED_BYTES
    if not small and _unpacked_bytes(file) <= target.piece_bytes:
        return _whole(index, file)
    return text_pieces(index, file, blobs, target, counted=small)


def _shards(pieces: Iterable[Piece], target: ShardTarget) -> list[Shard]:
    """Neighbouring pieces together, up to the target."""
    made: list[Shard] = []
    held: list[Piece] = []
    filled = 0.0
    for piece in pieces:
        share = max(target.share(piece.rows, piece.bytes), 1 / _MOST_PIECES)
        if held and filled + share > 1 + 1e-9:
            made.append(tuple(held))
            held, filled = [], 0.0
        held.append(piece)
        filled += share
    if held:
        made.append(tuple(held))
    return made


def _whole(index: int, file: InputFile) -> list[Piece]:
    return [file.whole(index, size_bytes=_unpacked_bytes(file))] if file.size_bytes else []


def _unpacked_bytes(file: InputFile) -> int:
    is_packed = file.compression is not None or file.format == "parquet"
    return file.size_bytes * (_TEXT_RATIO if is_packed else 1)
