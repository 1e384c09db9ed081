"""The requests of a batch that have no result, as a file of their own."""

from __future__ import annotations

import hashlib

import msgspec

from twoshift.batch.kinds.request_lines import read_line
from twoshift.batch.requests.files import StoredFiles
from twoshift.batch.requests.room import CheckStorage
from twoshift.batch_ports import BatchRecord
from twoshift.errors import InvalidInput, NotFound

__all__ = ["write_retried"]


class _Named(msgspec.Struct):
    custom_id: str


def write_retried(files: StoredFiles, batch: BatchRecord, check: CheckStorage) -> str:
    """The new file's id; raises InvalidInput where what it is made of is deleted, and what `check` does."""
    try:
        given, failed = files.get(batch.input_file_id), files.get(batch.error_file_id or "")
    except NotFound as error:
        raise InvalidInput(
            "batch", batch.id, f"a batch whose input and error files exist; {error.value} was deleted"
        ) from error
    decode = msgspec.json.Decoder(_Named).decode
    with files.open(failed) as file:
        wanted = {_digest(decode(line).custom_id) for line in file}
    upload = files.upload(batch.owner, given.size_bytes, check)
    try:
        upload.begin()
        with files.open(given) as file:
            for line in file:
                if not line.isspace() and _digest(read_line(line.removeprefix(b"\xef\xbb\xbf")).custom_id) in wanted:
                    upload.write(line if line.endswith(b"\n") else line + b"\n")
        return upload.finish(f"{batch.id}_retry.jsonl", "batch", None).id
    except BaseException:
        upload.abort()
        raise


def _digest(custom_id: str) -> bytes:
    return hashlib.blake2b(custom_id.encode(), digest_size=16).digest()
