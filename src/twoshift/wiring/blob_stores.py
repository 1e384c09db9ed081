"""Files to read and to publish, by what their location names."""

from __future__ import annotations

from functools import lru_cache

from twoshift.blobs.azure import AzureSettings
from twoshift.blobs.bucket import BucketBlobs
from twoshift.blobs.bucket_connection import BucketSettings
from twoshift.blobs.gcs import GcsSettings
from twoshift.blobs.local import LocalBlobs
from twoshift.blobs.s3 import S3Settings
from twoshift.errors import InvalidInput
from twoshift.ports import Blobs

__all__ = ["blobs_for"]

_SETTINGS = {"s3": S3Settings, "gs": GcsSettings, "az": AzureSettings}


def blobs_for(location: str) -> Blobs:
    """What reads and writes there: a path, or s3://, gs:// or az://bucket/key; raises InvalidInput for others."""
    scheme, separator, _ = location.partition("://")
    if not separator or "/" in scheme:
        return LocalBlobs()
    if scheme not in _SETTINGS:
        raise InvalidInput(
            "location", location, "a local path, or s3://bucket/key, gs://bucket/key, az://container/key"
        )
    return _bucket_blobs(_SETTINGS[scheme].from_environment())


@lru_cache(maxsize=8)  # it is asked for with every file, and holds connections
def _bucket_blobs(settings: BucketSettings) -> Blobs:
    return BucketBlobs(settings)
