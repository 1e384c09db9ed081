"""Buckets of Google Cloud Storage."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from twoshift.blobs.bucket_connection import plain_http
from twoshift.blobs.bucket_errors import Access
from twoshift.blobs.environments import fingerprint

__all__ = ["GcsSettings"]


@dataclass(frozen=True, slots=True)
class GcsSettings:
    """Where Google Cloud Storage is and how patient we are; obstore finds the credentials as Google's clients do."""

    scheme: ClassVar[str] = "gs"
    access: ClassVar[Access] = Access(
        "a Google Cloud Storage endpoint",
        "credentials: set GOOGLE_APPLICATION_CREDENTIALS to a key file, or run `gcloud auth application-default login`",
        "GOOGLE_APPLICATION_CREDENTIALS and the roles of its account (roles/storage.objectUser)",
    )

    endpoint: str | None = None  # None: Google's
    is_emulated: bool = False  # nobody is asked who they are
    identity: str = ""  # another user is another connection
    request_timeout_s: float = 30.0
    retry_for_s: float = 120.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> GcsSettings:
        """From the variables that Google's clients and obstore read."""
        emulator = environment.get("STORAGE_EMULATOR_HOST", "")
        if emulator and "://" not in emulator:
            emulator = f"http://{emulator}"
        endpoint = (emulator or environment.get("GOOGLE_BASE_URL", "")).rstrip("/")
        return cls(endpoint or None, bool(emulator), fingerprint(environment, "GOOGLE_"))

    @property
    def service(self) -> str:
        """As messages name it."""
        return self.endpoint or "Google Cloud Storage"

    def check(self, location: str) -> None:
        """Nothing is known before a request: a machine of Google's has credentials of its own."""

    def new_store(self, stores: Any, bucket: str, options: Mapping[str, Any]) -> Any:
        """obstore's view of a bucket."""
        where = {} if self.endpoint is None else {"base_url": self.endpoint}
        where |= {"bearer_token": "none"} if self.is_emulated else {}
        return stores.GCSStore(bucket, **where, **plain_http(options, self.endpoint))
