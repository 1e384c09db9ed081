"""From what the user calls the input to a list of files."""

from __future__ import annotations

import functools
import glob
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from twoshift.batch.inputs.file import InputFile, InputTable, known_encoding, named_encoding
from twoshift.batch.inputs.patterns import is_hidden, is_pattern, matcher, pattern_folder
from twoshift.batch.inputs.tables import is_table, table_files
from twoshift.blobs.roots import OutsideRoots
from twoshift.errors import InvalidInput, NotFound
from twoshift.ports import Blob, Blobs

__all__ = ["resolve"]

_ASKED_AT_ONCE = 16  # a list of 100,000 objects is stat'ed one round trip each
_LIST_BYTES = 256 << 20

BlobsFor = Callable[[str], Blobs]


def resolve(
    inputs: Sequence[str],
    blobs_for: BlobsFor,
    format: str | None = None,  # noqa: A002 - the option's name
    begun_with: Sequence[InputFile] = (),
) -> list[InputFile]:
    """The files that the inputs name, sorted within each input; raises InvalidInput.

    An input is a file, a folder, a Delta or Iceberg table, a pattern, or `@list.txt` with one of these a line. Of a
    table that files of `begun_with` are from, it is their version. In folders and patterns, names
    that begin with `_` or `.` are skipped, and so are files of an unknown suffix in folders unless the format is told.
    """
    files: dict[str, InputFile] = {}
    named_by: dict[str, str] = {}
    asked = _Asked(blobs_for, format, {file.table.location: file.table for file in begun_with if file.table})
    for given in inputs:
        for file in _named_as_inputs(given, asked):
            if not _is_utf8(file.location):
                raise InvalidInput("inputs", ascii(file.location), "input files whose names are valid UTF-8")
            key = _key(file.location)
            if key in files:
                accepted = f"each input file once; both {named_by[key]!r} and {given!r} match this file"
                raise InvalidInput("inputs", file.location, accepted)
            files[key] = file
            named_by[key] = given
    if not files:
        raise InvalidInput("inputs", list(inputs), "at least one file, folder or pattern")
    return list(files.values())


@dataclass(frozen=True, slots=True)
class _Asked:
    blobs_for: BlobsFor
    kind: str | None
    tables: Mapping[str, InputTable]  # by location, at the version that is wanted


def _named_as_inputs(given: str, asked: _Asked) -> list[InputFile]:
    """What a disk or a bucket calls a location is named as the setting is."""
    try:
        return _found(given, asked)
    except InvalidInput as error:
        if error.field != "location":
            raise
        raise error.renamed("inputs") from error


def _found(given: str, asked: _Asked) -> list[InputFile]:
    if not given.startswith("@"):
        return _located(given, asked)
    lines = _lines(given, asked.blobs_for)
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as asking:
        lists = list(asking.map(lambda line: _located(line, asked), lines))
    return [file for files in lists for file in files]


def _lines(given: str, blobs_for: BlobsFor) -> list[str]:
    location = given[1:]
    blobs = blobs_for(location)
    if blobs.stat(location) is None:
        raise InvalidInput("inputs", given, "@ followed by an existing file with one location per line")
    with blobs.open(location) as file:
        data = file.read(_LIST_BYTES)
    try:
        lines = [line.strip() for line in data.decode("utf-8-sig").splitlines()]
    except UnicodeDecodeError:
        raise InvalidInput("inputs", given, "@ followed by a list file in UTF-8, one location per line") from None
    locations = [line for line in lines if line and not line.startswith("#")]
    if not locations:
        raise InvalidInput("inputs", given, "@ followed by a list file with at least one location")
    return locations


def _located(location: str, asked: _Asked) -> list[InputFile]:
    """What one location stands for: itself, a table, what matches it, or what is below it."""
    blobs, kind = asked.blobs_for(location), asked.kind
    blob = None if location.endswith("/") else blobs.stat(location)
    if kind is None and _may_be_table(location, blob) and is_table(location, blobs):
        return table_files(location, asked.blobs_for, asked.tables)
    if blob is not None:
        return [_input_file(blob, kind)]
    is_folder = not is_pattern(location) or ("://" not in location and Path(location).is_dir())
    found = list(_below(location, blobs, kind) if is_folder else _matching(location, blobs))
    if not found:
        raise InvalidInput("inputs", location, _nothing(location))
    return [_input_file(blob, kind) for blob in sorted(found, key=lambda blob: blob.location)]


def _may_be_table(location: str, blob: Blob | None) -> bool:
    return location.endswith(".metadata.json") if blob is not None else not is_pattern(location)


def _input_file(blob: Blob, kind: str | None) -> InputFile:
    return InputFile(blob.location, blob.size_bytes, blob.identity, *named_encoding(blob.location, kind))


def _nothing(location: str) -> str:
    if is_pattern(location):
        return "a pattern that matches at least one file"
    known = ".parquet, .jsonl, .csv, .tsv, .arrow; other suffixes need --input-format"
    return f"an existing file, or a folder that contains at least one file of a known format ({known})"


def _below(folder: str, blobs: Blobs, kind: str | None) -> Iterator[Blob]:
    prefix = folder.rstrip("/") + "/"

    def is_input(location: str) -> bool:
        below = _relative(location, prefix)
        return bool(below) and not is_hidden(below) and (kind is not None or known_encoding(below) is not None)

    found = _listed(prefix, blobs)
    if "://" not in folder:
        _refuse_links(prefix, {blob.location for blob in found}, is_input, blobs)
    yield from (blob for blob in found if is_input(blob.location))


def _listed(prefix: str, blobs: Blobs) -> list[Blob]:
    try:
        return blobs.list(prefix)
    except NotFound as error:  # what a request asks for is there: what its input names is not
        raise InvalidInput(error.field, error.value, error.accepted) from error


def _refuse_links(prefix: str, listed: set[str], is_input: Callable[[str], bool], blobs: Blobs) -> None:
    """Raises InvalidInput for a link with an input's name that leads nowhere, and for every link out of the roots.

    Their rows would be lost in silence.
    """
    for folder, folders, names in os.walk(prefix):
        within = [(name, os.path.join(folder, name)) for name in folders]  # noqa: PTH118 - as the listing names it
        folders[:] = [
            name
            for name, location in within
            if not is_hidden(_relative(location, prefix)) and not _is_anothers(location, blobs)
        ]
        for location in (os.path.join(folder, name) for name in names):  # noqa: PTH118
            if location not in listed and is_input(location) and not _is_anothers(location, blobs):
                _check_link(location)


def _is_anothers(location: str, blobs: Blobs) -> bool:
    """Whether it is as if it were not there; raises InvalidInput for a link that leads to such a place."""
    try:
        blobs.stat(location)
    except OutsideRoots:
        if Path(location).is_symlink():
            raise
        return True
    return False


def _check_link(location: str) -> None:
    if Path(location).is_symlink() and not os.path.exists(location):  # noqa: PTH110 - Path raises for a circle
        raise InvalidInput("inputs", location, "an existing file; this path is a broken symbolic link")


def _matching(pattern: str, blobs: Blobs) -> Iterator[Blob]:
    if "://" not in pattern:  # the folders on the way are not all walked
        folder = pattern_folder(pattern)
        asked = is_hidden(pattern[len(folder) :])
        is_open = functools.cache(lambda parent: _may_look_into(parent, blobs))
        for path in glob.iglob(pattern, recursive=True):  # noqa: PTH207 - as the user wrote it, absolute or not
            if not asked and is_hidden(_relative(path, folder)):
                continue
            if not is_open(os.path.dirname(path)) or _is_anothers(path, blobs):  # noqa: PTH120 - as it was written
                continue
            _check_link(path)
            if (blob := blobs.stat(path)) is not None:
                yield blob
        return
    matches = matcher(pattern)
    for blob in _listed(pattern_folder(pattern), blobs):
        if matches.fullmatch(blob.location):
            yield blob


def _may_look_into(folder: str, blobs: Blobs) -> bool:
    """What matches in a folder of somebody else is never named, nor does an error tell that there is something."""
    try:
        blobs.stat(folder or ".")
    except OutsideRoots:
        return False
    return True


def _relative(location: str, prefix: str) -> str:
    if location.startswith(prefix):
        return location[len(prefix) :]
    return os.path.relpath(location, prefix or ".")


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _key(location: str) -> str:
    return location if "://" in location else os.path.abspath(location)  # noqa: PTH100 - a name, not a file
