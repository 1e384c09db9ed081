"""What a file holds, cheaply: so that one whose time of change alone is another counts as the same."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from twoshift.batch.inputs.file import InputFile
from twoshift.errors import TwoshiftError
from twoshift.ports import Blobs

__all__ = ["fingerprint", "fingerprinted"]

_BLOCKS, _BLOCK_BYTES = 8, 64 << 10  # the beginning, the end, and some between; a small file is read as a whole
_MOST_FILES = 10_000  # of more only the times of change are known
_OPENED_AT_ONCE = 8

BlobsFor = Callable[[str], Blobs]


def fingerprinted(files: Sequence[InputFile], blobs_for: BlobsFor) -> tuple[InputFile, ...]:
    """The same files, those of a disk with their fingerprint; an object in S3 has an etag instead."""
    if len(files) > _MOST_FILES or any("://" in file.location for file in files):
        return tuple(files)
    with ThreadPoolExecutor(_OPENED_AT_ONCE) as opening:
        found = opening.map(lambda file: fingerprint(file, blobs_for), files)
        return tuple(
            msgspec.structs.replace(file, fingerprint=each) for file, each in zip(files, found, strict=True)
        )  # fmt: skip


def fingerprint(file: InputFile, blobs_for: BlobsFor) -> str:
    """By blocks spread over the file; empty where it cannot be read."""
    last = max(0, file.size_bytes - _BLOCK_BYTES)
    digest = hashlib.sha256(str(file.size_bytes).encode())
    try:
        with blobs_for(file.location).open(file.location) as source:
            for start in sorted({last * k // (_BLOCKS - 1) for k in range(_BLOCKS)}):
                source.seek(start)
                digest.update(source.read(_BLOCK_BYTES))
    except (OSError, TwoshiftError):
        return ""
    return digest.hexdigest()
