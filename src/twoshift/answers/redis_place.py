"""A place in Redis that has answers: redis://host:6379/0#docs.

`twoshift:answers:docs:current` is the manifest of the generation that answers, `...:rows:NAME:ATTEMPT` a hash of its
rows by key, `...:history` the generations that were current, `...:kept:VERSION:...` rows that were computed live.
"""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from twoshift.errors import InvalidInput
from twoshift.extras import needed

__all__ = ["ACCEPTED", "PASSWORD", "RedisPlace", "is_redis", "redis_package", "redis_place", "redis_reason"]

ACCEPTED = "redis://host:6379/0#NAME (or rediss:// with TLS)"
PASSWORD = "REDISCLI_AUTH"  # noqa: S105 - the environment variable that redis-cli reads
_SCHEMES = ("redis://", "rediss://")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_USUAL = "answers"
_CONNECT_S = 1.0


class RedisPlace(NamedTuple):
    """A server's database, and a name in it."""

    url: str
    name: str

    def key(self, *parts: str) -> str:
        """Of what lies there."""
        return ":".join(("twoshift", "answers", self.name, *parts))

    def connect(self, timeout_s: float, connect_s: float = _CONNECT_S) -> Any:
        """A client, which connects once it is asked; raises NotInstalled where its package is missing."""
        redis = redis_package(self.url)
        return redis.Redis.from_url(
            self.url,
            password=os.environ.get(PASSWORD) or None,
            socket_timeout=timeout_s,
            socket_connect_timeout=connect_s,
            protocol=2,  # which every server speaks
            retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0),  # who asks goes on without it
        )


def is_redis(place: str) -> bool:
    """Whether it is one, by its name."""
    return place.startswith(_SCHEMES)


def redis_place(place: str, field: str) -> RedisPlace:
    """Raises InvalidInput where it is none; passwords stay out of commands, logs and plans."""
    parts = urlsplit(place)
    try:
        has_port = parts.port is not None or ":" not in parts.netloc.rpartition("@")[2].rpartition("]")[2]
    except ValueError:
        has_port = False
    if parts.password is not None:
        shown = place.replace(f":{parts.password}@", ":***@")
        raise InvalidInput(field, shown, f"a URL without a password: set the environment variable {PASSWORD}")
    name = parts.fragment or _USUAL
    database = parts.path.strip("/")
    is_plain = has_port and bool(parts.hostname) and not parts.query and (not database or database.isdigit())
    if not is_plain or not _NAME.fullmatch(name):
        raise InvalidInput(field, place, ACCEPTED)
    return RedisPlace(urlunsplit((parts.scheme, parts.netloc, f"/{database or 0}", "", "")), name)


def redis_package(place: str, field: str = "precomputed") -> Any:
    """Raises NotInstalled."""
    for module in ("redis.backoff", "redis.retry"):
        needed(module, "redis", place, field)
    return needed("redis", "redis", place, field)


def redis_reason(error: Exception) -> str:
    """What a client's error says, on one line."""
    said = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
    return f"{said}; set the environment variable {PASSWORD}" if type(error).__name__ == "AuthenticationError" else said
