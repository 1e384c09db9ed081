"""What the service that has a bucket says, by what the user should do."""

from __future__ import annotations

import re
from dataclasses import dataclass

from twoshift.errors import Broken, InvalidInput, TryLater, TwoshiftError

__all__ = ["Access", "InFlight", "explained", "is_no_bucket", "is_transient", "is_unreachable"]

_RETRY_S = 30.0
_TRANSIENT = re.compile(r"HTTP error|status code: (?:408|429|5(?!01)\d\d)|body error|partial response")
_NO_CREDENTIALS = re.compile(r"169\.254\.|metadata\.google|credential|token request", re.IGNORECASE)
_DENIED = ("PermissionDeniedError", "UnauthenticatedError")
_WRONG_REGION = ("incorrectly configured region", "AuthorizationHeaderMalformed", "PermanentRedirect")
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
_METADATA = ("169.254.", "metadata.google.internal")  # where a cloud's own machines are asked who they are


@dataclass(frozen=True, slots=True)
class Access:
    """What a user sets to be let in, in words."""

    kind: str  # an S3 endpoint
    to_set: str  # "credentials: set ..."
    to_check: str  # variables and policies


class InFlight(Exception):
    """Somebody else was writing at that moment, and nothing lies there: the same request may succeed now."""


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed in a moment."""
    if isinstance(error, InFlight):
        return True
    text = _message(error)
    return type(error).__name__ == "GenericError" and bool(_TRANSIENT.search(text)) and not _asks_who(text)


def is_unreachable(error: Exception) -> bool:
    """Whether there was no connection at all."""
    return "kind: Connect" in str(error)


def is_no_bucket(error: Exception) -> bool:
    """Whether it is the bucket that is missing; an answer to HEAD does not say so."""
    return any(sign in _message(error) for sign in _NO_BUCKET)


def explained(error: Exception, location: str, endpoint: str, access: Access) -> TwoshiftError:
    """The error to raise: it names the endpoint and what to change."""
    text = _message(error)
    if is_no_bucket(error):
        return InvalidInput("location", location, f"a bucket that exists at {endpoint}")
    if type(error).__name__ in _DENIED:
        accepted = f"credentials that {endpoint} accepts: check {access.to_check} ({_code(text)})"
        return InvalidInput("location", location, accepted)
    if is_transient(error):
        return TryLater(f"{endpoint} does not answer for {location} ({_short(text)})", _RETRY_S)
    if any(sign in text for sign in _WRONG_REGION):
        return InvalidInput("location", location, "the correct region of the bucket: set AWS_REGION")
    if isinstance(error, ValueError):
        return InvalidInput("location", location, f"an object key that is a valid path ({_short(text)})")
    if type(error).__name__ == "PreconditionError":
        return Broken(f"{location} was replaced while it was being read")
    if "501 Not Implemented" in text:
        return InvalidInput(
            "location",
            location,
            f"{access.kind} that supports conditional puts (If-None-Match); {endpoint} does not support them",
        )
    if _NO_CREDENTIALS.search(text):
        return InvalidInput("location", location, access.to_set)
    return Broken(f"{location} cannot be used at {endpoint}: {_short(text)}")


def _asks_who(text: str) -> bool:
    return any(address in text for address in _METADATA)


def _message(error: Exception) -> str:
    return str(error).partition("\n\nDebug source")[0]


def _short(text: str) -> str:
    return " ".join(text.rpartition(" - ")[2].split())[:200] or "no reason given"


def _code(text: str) -> str:
    found = re.search(r"<Code>(\w+)</Code>", text)
    return found[1] if found else _short(text)
