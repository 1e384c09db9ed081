"""Files to read and to publish, by what their location names."""

from __future__ import annotations

from functools import lru_cache

from twoshift.blobs.local import LocalBlobs
from twoshift.blobs.s3 import S3Blobs
from twoshift.blobs.s3_connection import S3Settings
from twoshift.errors import InvalidInput
from twoshift.ports import Blobs

__all__ = ["blobs_for"]


def blobs_for(location: str) -> Blobs:
    """What reads and writes there: a path, or s3://bucket/key; raises InvalidInput for anything else."""
    scheme, separator, _ = location.partition("://")
    if not separator or "/" in scheme:
        return LocalBlobs()
    if scheme != "s3":
        raise InvalidInput("location", location, "a local path, or s3://bucket/key")

    return _s3_blobs(S3Settings.from_environment())


@lru_cache(maxsize=8)  # it is asked for with every file, and holds connections
def _s3_blobs(settings: S3Settings) -> Blobs:
    return S3Blobs(settings)
