"""Where somebody's jobs may read and write."""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from twoshift.blobs.environments import is_bucket
from twoshift.errors import InvalidInput

__all__ = ["BROKERS", "OutsideRoots", "Roots", "check_root"]

BROKERS = ("nats://", "tls://", "kafka://", "postgresql://", "postgres://")  # where rows of streams are, not files

_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # the last are no characters at all
_MOST_ENCODED = 8  # times; nobody names a file like that in good faith
_Depth = Callable[[str, str], int]  # of a place and a root: how deep the root lies; -1 where it does not hold the place


class OutsideRoots(InvalidInput):
    """A place that is somebody else's; a name that nobody's place may have is InvalidInput only."""


@dataclass(frozen=True, slots=True)
class Roots:
    """Folders and prefixes in buckets. The deepest root that holds a place says whose it is."""

    own: tuple[str, ...]
    others: tuple[str, ...] = ()  # other tenants', and the server's own files

    def check(self, location: str, field: str = "location") -> None:
        """Raises InvalidInput where the place is not its own; of a file of this machine links are followed first."""
        if not self.holds(location):
            allowed = (
                ", ".join(self.own) or "a folder in the server's `job_roots`; this API key may not use any of them"
            )
            kind = InvalidInput if _is_odd(location) else OutsideRoots
            raise kind(field, location, f"a location below {allowed}")

    def holds(self, location: str) -> bool:
        """Whether it is its own."""
        if _is_odd(location):
            return False
        if _URL.match(location):
            return self._decides(location, _below_url)
        # A relative one is in a folder of the server's own
        return Path(location).is_absolute() and self.holds_file(os.path.realpath(location))

    def holds_file(self, real: str) -> bool:
        """The same of a file without links in its name."""
        return self._decides(real, _below_folder)

    def _decides(self, location: str, depth: _Depth) -> bool:
        own = max((depth(location, root) for root in self.own), default=-1)
        other = max((depth(location, root) for root in self.others), default=-1)
        return own >= 0 and own >= other


def check_root(root: str, field: str) -> None:
    """Raises InvalidInput where it is no folder by its whole name, no place in a bucket and none of a broker."""
    is_place = is_bucket(root) or _is_broker(root) if "://" in root else Path(root).is_absolute()
    if not is_place or _is_odd(root):
        accepted = "an absolute path such as /data/search, or an s3://, gs:// or az:// prefix"
        brokers = "nats://host:4222/SUBJECT, kafka://host:9092/TOPIC or postgresql://host/DATABASE"
        raise InvalidInput(field, root, f"{accepted}; for streams also {brokers}")


def _is_broker(root: str) -> bool:
    """A whole one, or one of its subjects, topics or databases; who connects is said elsewhere."""
    parts = urllib.parse.urlsplit(root)
    return root.startswith(BROKERS) and bool(parts.netloc) and "@" not in parts.netloc and not parts.query


def _below_url(location: str, root: str) -> int:
    folder = f"{root.rstrip('/')}/"
    return len(folder) if _URL.match(root) and f"{location.rstrip('/')}/".startswith(folder) else -1


def _below_folder(location: str, root: str) -> int:
    if _URL.match(root):
        return -1
    folder = _real_root(root)
    return len(folder.parts) if Path(location).is_relative_to(folder) else -1


@lru_cache(maxsize=1024)  # it is asked for with every file; who runs the server does not move it
def _real_root(root: str) -> Path:
    return Path(os.path.realpath(root))


def _is_odd(location: str) -> bool:
    return _CONTROL.search(location) is not None or _climbs(location)


def _climbs(location: str) -> bool:
    """Whether a part of it, however often it is encoded, leads up or stays where it is."""
    for _ in range(_MOST_ENCODED):
        if any(part in (".", "..") for part in re.split(r"[/\\]", location)):
            return True
        decoded = urllib.parse.unquote(location)
        if decoded == location:
            return False
        location = decoded
    return True
