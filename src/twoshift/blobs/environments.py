"""Variables that say how buckets are reached."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

__all__ = ["SCHEMES", "bucket_variables", "fingerprint", "is_bucket"]

# By scheme: how the names of the variables begin that its clients read
SCHEMES: dict[str, tuple[str, ...]] = {
    "s3": ("AWS_",),
    "gs": ("GOOGLE_", "STORAGE_EMULATOR_HOST"),
    "az": ("AZURE_",),
}


def is_bucket(location: str) -> bool:
    """Whether it names a place in a bucket."""
    scheme, separator, rest = location.partition("://")
    return bool(separator) and scheme in SCHEMES and rest.partition("/")[0] != ""


def bucket_variables(locations: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """What another machine needs to reach these locations."""
    wanted = tuple(start for each in locations for start in SCHEMES.get(each.partition("://")[0], ()))
    return {name: value for name, value in environment.items() if wanted and name.startswith(wanted)}


def fingerprint(environment: Mapping[str, str], start: str) -> str:
    """Another one whenever a variable is another, from which no secret can be read."""
    told = sorted(f"{name}={value}" for name, value in environment.items() if name.startswith(start))
    return hashlib.sha256("\0".join(told).encode()).hexdigest()
