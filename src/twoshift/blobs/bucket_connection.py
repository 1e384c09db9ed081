"""Requests to the service that has a bucket: who asks whom, how long, and how often."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, ClassVar, Protocol, TypeVar

from twoshift.blobs.bucket_errors import Access, InFlight, explained, is_no_bucket, is_transient, is_unreachable
from twoshift.extras import needed
from twoshift.policy.retries import RetryPolicy
from twoshift.retrying import retried

__all__ = ["BucketConnection", "BucketSettings", "plain_http"]

_CONNECT_TIMEOUT_S = 5
_FIRST_CONTACT_S = 10.0
_QUICK_RETRIES = 2  # by obstore; what it does not try again, a create that timed out, is tried again here
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_USUAL_BYTES = 16 << 20  # sent within the usual time; twice as much has twice the time

T = TypeVar("T")


class BucketSettings(Protocol):
    """Where buckets are and how patient we are; secrets stay in the environment. Equal ones share a connection."""

    scheme: ClassVar[str]  # s3, gs, az
    access: ClassVar[Access]  # what a user sets to be let in

    @property
    def service(self) -> str:
        """As messages name it."""
        ...

    @property
    def request_timeout_s(self) -> float: ...

    @property
    def retry_for_s(self) -> float: ...

    def check(self, location: str) -> None:
        """Raises InvalidInput where it is known before any request that nobody would be let in."""
        ...

    def new_store(self, stores: Any, bucket: str, options: Mapping[str, Any]) -> Any:
        """obstore's view of a bucket; `stores` is its module, `options` go to its constructor."""
        ...


class BucketConnection:
    """The buckets of one service."""

    def __init__(self, settings: BucketSettings) -> None:
        self.obstore = needed("obstore", "s3", f"{settings.scheme}://", "location")
        self._stores = needed("obstore.store", "s3", f"{settings.scheme}://", "location")
        self._settings = settings
        self._known: dict[tuple[str, float], Any] = {}
        self._has_answered = False

    @property
    def endpoint(self) -> str:
        """As messages name it."""
        return self._settings.service

    def store(self, bucket: str, size_bytes: int = 0) -> Any:
        """obstore's view of a bucket, with time enough to send that many bytes."""
        timeout_s = self._settings.request_timeout_s * 2 ** math.ceil(math.log2(max(1.0, size_bytes / _USUAL_BYTES)))
        key = (bucket, timeout_s)
        self._settings.check(f"{self._settings.scheme}://{bucket}")
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
                raise explained(error, location, self.endpoint, self._settings.access) from error
            raise
        except (self.obstore.exceptions.BaseError, InFlight, ValueError) as error:
            raise explained(error, location, self.endpoint, self._settings.access) from error
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
        options = {
            "client_options": {
                "connect_timeout": timedelta(seconds=min(_CONNECT_TIMEOUT_S, timeout_s)),
                "timeout": timedelta(seconds=timeout_s),
            },
            "retry_config": {
                "max_retries": _QUICK_RETRIES,
                "retry_timeout": timedelta(seconds=self._settings.retry_for_s),
                "backoff": {
                    "init_backoff": timedelta(seconds=_FIRST_PAUSE_S),
                    "max_backoff": timedelta(seconds=_LONGEST_PAUSE_S),
                    "base": 2,
                },
            },
        }
        return self._settings.new_store(self._stores, bucket, options)


def plain_http(options: Mapping[str, Any], endpoint: str | None) -> dict[str, Any]:
    """The same options, where the endpoint has no TLS."""
    allowed = {"allow_http": (endpoint or "").startswith("http://")}
    return {**options, "client_options": {**options["client_options"], **allowed}}
