"""Requests to an S3 endpoint: who asks whom, how long, and how often."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from twoshift.blobs.s3_errors import InFlight, explained, is_no_bucket, is_transient, is_unreachable, no_credentials
from twoshift.extras import needed
from twoshift.policy.retries import RetryPolicy
from twoshift.retrying import retried

__all__ = ["S3Connection", "S3Settings"]

_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_SKIP_SIGNATURE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
)
_CONNECT_TIMEOUT_S = 5
_FIRST_CONTACT_S = 10.0
_QUICK_RETRIES = 2  # by obstore; what it does not try again, a create that timed out, is tried again here
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_USUAL_BYTES = 16 << 20  # sent within the usual time; twice as much has twice the time

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Where the endpoint is and how patient we are; secrets stay in the environment, where obstore reads them."""

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


class S3Connection:
    """The buckets of one endpoint."""

    def __init__(self, settings: S3Settings) -> None:
        self.obstore = needed("obstore", "s3", "s3://", "location")
        self._stores = needed("obstore.store", "s3", "s3://", "location")
        self._settings = settings
        self._known: dict[tuple[str, float], Any] = {}
        self._has_answered = False

    @property
    def endpoint(self) -> str:
        """As messages name it."""
        return self._settings.endpoint or f"Amazon S3 in {self._settings.region or 'us-east-1'}"

    def store(self, bucket: str, size_bytes: int = 0) -> Any:
        """obstore's view of a bucket, with time enough to send that many bytes."""
        timeout_s = self._settings.request_timeout_s * 2 ** math.ceil(math.log2(max(1.0, size_bytes / _USUAL_BYTES)))
        key = (bucket, timeout_s)
        if self._settings.endpoint and not self._settings.has_credentials:
            raise no_credentials(f"s3://{bucket}")
        if key not in self._known:  # two threads may both make one: either will do
            self._known[key] = self._new_store(bucket, timeout_s)
        return self._known[key]

    def call(self, location: str, request: Callable[[], T]) -> T:
        """What the request returns, tried again for a while; raises FileNotFoundError, or what a user can act on."""
        policy = RetryPolicy(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, self._settings.retry_for_s)
        try:
            answer = retried(request, policy, self._may_retry)
        except FileNotFoundError as error:
            if is_no_bucket(error):
                raise explained(error, location, self.endpoint) from error
            raise
        except (self.obstore.exceptions.BaseError, InFlight, ValueError) as error:
            raise explained(error, location, self.endpoint) from error
        self._has_answered = True
        return answer

    def _may_retry(self, error: Exception, age_s: float) -> bool:
        is_store_error = isinstance(error, (self.obstore.exceptions.BaseError, InFlight, ValueError))
        if not is_store_error or isinstance(error, FileNotFoundError):
            return False
        return is_transient(error) and age_s <= self._patience_s(error)

    def _patience_s(self, error: Exception) -> float:
        if is_unreachable(error) and not self._has_answered:  # more likely a wrong address than an outage
            return min(_FIRST_CONTACT_S, self._settings.retry_for_s)
        return self._settings.retry_for_s

    def _new_store(self, bucket: str, timeout_s: float) -> Any:
        settings = self._settings
        options: dict[str, Any] = {} if settings.region is None else {"region": settings.region}
        if settings.endpoint is not None:
            options["endpoint"] = settings.endpoint
        return self._stores.S3Store(
            bucket,
            **options,
            disable_bulk_delete=True,  # not every endpoint has it, and a plain delete may be tried again
            client_options={
                "allow_http": (settings.endpoint or "").startswith("http://"),
                "connect_timeout": timedelta(seconds=min(_CONNECT_TIMEOUT_S, timeout_s)),
                "timeout": timedelta(seconds=timeout_s),
            },
            retry_config={
                "max_retries": _QUICK_RETRIES,
                "retry_timeout": timedelta(seconds=settings.retry_for_s),
                "backoff": {
                    "init_backoff": timedelta(seconds=_FIRST_PAUSE_S),
                    "max_backoff": timedelta(seconds=_LONGEST_PAUSE_S),
                    "base": 2,
                },
            },
        )
