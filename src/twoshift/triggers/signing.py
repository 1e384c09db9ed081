"""Signatures as Standard Webhooks has them: receivers check them with its libraries, or in five lines."""

from __future__ import annotations

import base64
import hashlib
import hmac

__all__ = ["signed_headers"]


def signed_headers(key: bytes, delivery_id: str, at_unix_s: int, body: bytes) -> dict[str, str]:
    """The id, the time and the signature of both and the body."""
    content = f"{delivery_id}.{at_unix_s}.".encode() + body
    signature = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": str(at_unix_s),
        "webhook-signature": f"v1,{signature}",
    }
