"""Containers of Azure Blob Storage."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from twoshift.blobs.bucket_connection import plain_http
from twoshift.blobs.bucket_errors import Access
from twoshift.blobs.environments import fingerprint
from twoshift.errors import InvalidInput

__all__ = ["AzureSettings"]

_CONNECTION = "AZURE_STORAGE_CONNECTION_STRING"


@dataclass(frozen=True, slots=True)
class AzureSettings:
    """Which storage account is used and how patient we are; secrets stay in the environment."""

    scheme: ClassVar[str] = "az"
    access: ClassVar[Access] = Access(
        "an Azure endpoint",
        "credentials: set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_CONNECTION_STRING",
        "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY and the roles of the account "
        "(Storage Blob Data Contributor)",
    )

    account: str | None = None
    endpoint: str | None = None  # None: the account's own
    identity: str = ""  # another user is another connection
    request_timeout_s: float = 30.0
    retry_for_s: float = 120.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> AzureSettings:
        """From the variables that Azure's tools and obstore read."""
        given, parts = environment.get, _parts(environment)
        account = given("AZURE_STORAGE_ACCOUNT_NAME") or given("AZURE_STORAGE_ACCOUNT") or parts.get("AccountName")
        endpoint = given("AZURE_STORAGE_ENDPOINT") or given("AZURE_ENDPOINT") or parts.get("BlobEndpoint")
        return cls(account or None, endpoint.rstrip("/") if endpoint else None, fingerprint(environment, "AZURE_"))

    @property
    def service(self) -> str:
        """As messages name it."""
        return self.endpoint or f"the Azure storage account {self.account}"

    def check(self, location: str) -> None:
        """Raises InvalidInput where nobody says which account it is."""
        if self.account is None:
            raise InvalidInput("location", location, f"a storage account and {self.access.to_set}")

    def new_store(self, stores: Any, bucket: str, options: Mapping[str, Any]) -> Any:
        """obstore's view of a container."""
        where: dict[str, Any] = {"account_name": self.account}
        where |= {} if self.endpoint is None else {"endpoint": self.endpoint}
        parts = _parts(os.environ)
        if key := os.environ.get("AZURE_STORAGE_KEY") or parts.get("AccountKey"):
            where["account_key"] = key
        elif signature := parts.get("SharedAccessSignature"):
            where["sas_key"] = signature
        return stores.AzureStore(bucket, **where, **plain_http(options, self.endpoint))


def _parts(environment: Mapping[str, str]) -> dict[str, str]:
    """What a connection string says: `AccountName=...;AccountKey=...;BlobEndpoint=...`."""
    pairs = (each.partition("=") for each in environment.get(_CONNECTION, "").split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs if value}
