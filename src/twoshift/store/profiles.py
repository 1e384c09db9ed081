"""Profiles as JSON files in one folder."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import msgspec

from twoshift.decodable import decodable
from twoshift.durable import sync_directory
from twoshift.errors import Broken, InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.plan.row import RowSize
from twoshift.policy.profile import Profile, checked_name
from twoshift.policy.threads import ThreadPlan, ThreadStep

__all__ = ["FileProfiles", "decode_profile", "encode_profile"]

_FORMAT = 5
# Format 1 had no checksum and no parity, format 2 no cost of a row by itself and no ceilings, format 3 no threads,
# format 4 no cost of live steps
_READABLE = (1, 2, 3, 4, 5)
_MOST_BYTES = 1_000_000


@decodable
class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """The file's fields; `format` changes when they do."""

    format: int
    name: str
    created_at: str
    samples: int
    cost: dict[str, object]
    row_tokens: float = 1.0
    row_longest: float = 1.0
    model: str = ""
    runtime: str = ""
    device: str = ""
    precision: str = ""
    checksum: str = ""
    parity: float | None = None
    threads: list[tuple[int, int]] | None = None  # (from so many rows, so many threads)
    live_cost: dict[str, object] | None = None
    stream_token_s: float = 0.0


class FileProfiles:
    """One file a profile; written whole or not at all."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def get(self, name: str) -> Profile:
        """The profile of that name; raises InvalidInput with the known names, Broken where it is damaged."""
        path = self._path(name)
        try:
            if path.exists() and (not path.is_file() or path.stat().st_size > _MOST_BYTES):
                what = f"profile {path} is not a plain file, or is larger than {_MOST_BYTES:,} bytes"
                raise Broken(f"{what}: delete this file and measure the profile again")
            data = path.read_bytes()
        except FileNotFoundError:
            known = ", ".join(self.names()) or "there is none yet; `twoshift profile MODEL` creates one"
            raise InvalidInput("profile", name, f"a profile in {self._root} ({known})") from None
        except OSError as error:
            raise Broken(f"profile {path} cannot be read: {error.strerror}") from error
        return decode_profile(data, str(path))

    def put(self, profile: Profile) -> None:
        """Store it, replacing one of the same name."""
        path = self._path(profile.name)
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            _write_atomically(path, encode_profile(profile))
        except OSError as error:
            raise Broken(
                f"profile {path} cannot be written: {error.strerror} (TWOSHIFT_HOME sets the folder)"
            ) from error

    def names(self) -> list[str]:
        """The known names, sorted."""
        try:
            return sorted(p.stem for p in self._root.glob("*.json") if p.is_file() and not p.name.startswith("."))
        except OSError:
            return []

    def _path(self, name: str) -> Path:
        return self._root / f"{checked_name(name)}.json"


def encode_profile(profile: Profile) -> bytes:
    """As it is stored."""
    stored = _Stored(
        format=_FORMAT,
        name=profile.name,
        created_at=profile.created_at,
        samples=profile.samples,
        cost=profile.cost.to_dict(),
        row_tokens=profile.row.tokens,
        row_longest=profile.row.longest,
        model=profile.model,
        runtime=profile.runtime,
        device=profile.device,
        precision=profile.precision,
        checksum=profile.checksum,
        parity=profile.parity,
        threads=None if profile.threads is None else [(step[0], step[1]) for step in profile.threads.steps],
        live_cost=None if profile.live_cost is None else profile.live_cost.to_dict(),
        stream_token_s=profile.stream_token_s,
    )
    return msgspec.json.format(msgspec.json.encode(stored), indent=2) + b"\n"


def decode_profile(data: bytes, path: str) -> Profile:
    """The profile again; raises Broken that names its place."""
    try:
        stored = msgspec.json.decode(data, type=_Stored)
        if stored.format not in _READABLE:
            what = f"profile {path} has format {stored.format}, but this version reads only formats up to {_FORMAT}"
            raise Broken(f"{what}; measure it again")
        return Profile(
            name=stored.name,
            cost=CallCost.from_dict(stored.cost),
            created_at=stored.created_at,
            samples=stored.samples,
            row=RowSize(stored.row_tokens, stored.row_longest),
            model=stored.model,
            runtime=stored.runtime,
            device=stored.device,
            precision=stored.precision,
            checksum=stored.checksum,
            parity=stored.parity,
            threads=None if stored.threads is None else ThreadPlan(tuple(ThreadStep(*step) for step in stored.threads)),
            live_cost=None if stored.live_cost is None else CallCost.from_dict(stored.live_cost),
            stream_token_s=stored.stream_token_s,
        )
    except (msgspec.DecodeError, ValueError, ArithmeticError, RecursionError) as error:
        raise Broken(f"profile {path} is damaged ({error}); measure it again") from error


def _write_atomically(path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_directory(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
