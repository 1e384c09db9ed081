"""Buckets of Amazon S3, or of whatever speaks its protocol."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from twoshift.blobs.bucket import BucketBlobs
from twoshift.blobs.bucket_connection import plain_http
from twoshift.blobs.bucket_errors import Access
from twoshift.errors import InvalidInput

__all__ = ["S3Blobs", "S3Settings"]

_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_SKIP_SIGNATURE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
)

S3Blobs = BucketBlobs


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Where the endpoint is and how patient we are; obstore reads secrets from the environment."""

    scheme: ClassVar[str] = "s3"
    access: ClassVar[Access] = Access(
        "an S3 endpoint",
        "credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a public bucket",
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and the IAM or bucket policy",
    )

    endpoint: str | None = None  # None: Amazon's
    region: str | None = None
    key_id: str | None = None  # another user is another connection
    has_credentials: bool = False
    request_timeout_s: float = 30.0
    retry_for_s: float = 120.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> S3Settings:
        """From the variables that every S3 client reads."""
        given = environment.get
        endpoint = given("AWS_ENDPOINT_URL_S3") or given("AWS_ENDPOINT_URL") or given("AWS_ENDPOINT")
        return cls(
            endpoint=endpoint.rstrip("/") if endpoint else None,
            region=given("AWS_REGION") or given("AWS_DEFAULT_REGION"),
            key_id=given("AWS_ACCESS_KEY_ID"),
            has_credentials=any(given(name) for name in _CREDENTIALS),
        )

    @property
    def service(self) -> str:
        """As messages name it."""
        return self.endpoint or f"Amazon S3 in {self.region or 'us-east-1'}"

    def check(self, location: str) -> None:
        """Raises InvalidInput at an endpoint that is not Amazon's, where no machine has credentials of its own."""
        if self.endpoint and not self.has_credentials:
            raise InvalidInput("location", location, self.access.to_set)

    def new_store(self, stores: Any, bucket: str, options: Mapping[str, Any]) -> Any:
        """obstore's view of a bucket."""
        where = {} if self.region is None else {"region": self.region}
        where |= {} if self.endpoint is None else {"endpoint": self.endpoint}
        # Not every endpoint has bulk deletes, and a plain one may be tried again
        return stores.S3Store(bucket, **where, **plain_http(options, self.endpoint), disable_bulk_delete=True)
