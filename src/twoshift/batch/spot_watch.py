"""Asks whether this machine will be taken away: a cloud's metadata server, another address, or a file."""

from __future__ import annotations

import http.client
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from twoshift.batch.spot_notices import SpotNotice, read_notice

__all__ = ["CLOUDS", "noticed", "watch_for_notice"]

CLOUDS = {
    "aws": "http://169.254.169.254/latest/meta-data/spot/instance-action",
    "gcp": "http://metadata.google.internal/computeMetadata/v1/instance/preempted",
}
_EVERY_S = 2.0  # AWS gives two minutes, GCP half a minute
_ANSWER_S = 2.0
_MOST_BYTES = 1 << 16
_AWS_PATH = "/latest/meta-data/"
_TOKEN, _TOKEN_TTL = "X-aws-ec2-metadata-token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
_UNANSWERED = (OSError, http.client.HTTPException, ValueError)
# No proxy knows of this machine's own metadata
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def watch_for_notice(
    look: Callable[[], SpotNotice | None], tell: Callable[[SpotNotice], None], closed: threading.Event
) -> None:
    """A thread that looks and tells of the first notice, and ends with it, or once `closed` is set."""

    def watch() -> None:
        while True:
            if (found := look()) is not None:
                tell(found)
                return
            if closed.wait(_EVERY_S):
                return

    threading.Thread(target=watch, name="twoshift-notice", daemon=True).start()


def noticed(where: str) -> SpotNotice | None:
    """What is said now; nothing where nobody answers: a machine without such a server stays."""
    where = CLOUDS.get(where, where)
    try:
        told = _got(where) if where.startswith(("http://", "https://")) else _read(Path(where))
    except _UNANSWERED:
        return None
    return None if told is None else read_notice(told, time.time())


def _read(path: Path) -> str | None:
    """The text of the file; None where there is none."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return file.read(_MOST_BYTES).decode(errors="replace").strip() or f"{path.name} exists"


def _got(url: str) -> str | None:
    """A reply's text; None for 404, which is AWS's word for a machine that stays."""
    headers = {"Metadata-Flavor": "Google"}  # without it GCP does not answer
    if _AWS_PATH in url:
        headers |= _aws_token(url)
    try:
        return _asked(urllib.request.Request(url, headers=headers))  # noqa: S310 - the scheme was looked at
    except urllib.error.HTTPError as error:
        error.close()
        return None


def _aws_token(url: str) -> dict[str, str]:
    """What the second version of AWS's metadata wants to see; nothing where it is the first."""
    place = urlsplit(url)
    asking = urllib.request.Request(  # noqa: S310 - as above
        f"{place.scheme}://{place.netloc}/latest/api/token", headers=_TOKEN_TTL, method="PUT"
    )
    try:
        return {_TOKEN: _asked(asking)}
    except urllib.error.HTTPError as error:
        error.close()
        return {}


def _asked(request: urllib.request.Request) -> str:
    with _opener.open(request, timeout=_ANSWER_S) as reply:
        return reply.read(_MOST_BYTES).decode(errors="replace")
