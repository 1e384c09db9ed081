"""Who is told when a job or a rollout ends, as a configuration has it."""

from __future__ import annotations

import base64
import binascii
import os
from typing import Annotated

import msgspec

from twoshift.declare import key
from twoshift.errors import InvalidInput, Malformed
from twoshift.policy.addresses import target_of
from twoshift.values import FLAG, names

__all__ = ["WebhookSettings", "check_webhook"]

EVENTS = ("completed", "failed", "expired", "cancelled", "promoted", "rolled_back")
_LEAST_SECRET_BYTES = 16


class WebhookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A URL that is told, and what of."""

    url: Annotated[str, key("URL that the server calls.")]
    secret: Annotated[
        str | None, key("Secret that signs each delivery: any text, or whsec_ followed by the key in base64.")
    ] = None
    secret_env: Annotated[
        str | None, key("Name of the environment variable that contains the secret, in place of `secret`.")
    ] = None
    events: Annotated[tuple[str, ...], key("Events that trigger the webhook.", names())] = EVENTS
    tenant: Annotated[str | None, key("Tenant whose jobs trigger the webhook.", shown="all tenants")] = None
    only_named: Annotated[bool, key("Call the webhook only for jobs that name it in `notify`.", FLAG)] = False
    below: Annotated[
        bool, key("Allow jobs to list in `notify` any URL that begins with the `url` of the webhook.", FLAG)
    ] = False

    def signing_key(self) -> bytes:
        """What deliveries are signed with; raises InvalidInput."""
        if (self.secret is None) == (self.secret_env is None):
            raise Malformed("secret", "either `secret` or `secret_env`, and not both")
        given = self.secret if self.secret_env is None else os.environ.get(self.secret_env)
        if given is None:
            raise InvalidInput("secret_env", self.secret_env, "the name of an environment variable that is set")
        text = given.strip()
        try:
            key = base64.b64decode(text[6:], validate=True) if text.startswith("whsec_") else text.encode()
        except (binascii.Error, ValueError):
            key = b""
        if len(key) < _LEAST_SECRET_BYTES:
            field, shown = ("secret", "...") if self.secret_env is None else ("secret_env", self.secret_env)
            accepted = (
                f"a secret of at least {_LEAST_SECRET_BYTES} bytes: plain text, or whsec_ followed by the key in base64"
            )
            raise InvalidInput(field, shown, accepted)
        return key


def check_webhook(settings: WebhookSettings, private_too: bool) -> None:
    """Raises InvalidInput."""
    target_of(settings.url, private_too)
    settings.signing_key()
    for event in settings.events:
        if event not in EVENTS:
            raise InvalidInput("events", event, f"one or several of {', '.join(EVENTS)}")
    if settings.below and not settings.url.endswith("/"):
        raise InvalidInput("url", settings.url, "a URL that ends with /, because this webhook has `below = true`")
