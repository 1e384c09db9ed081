"""How a reply goes over the wire to who has asked for it."""

from __future__ import annotations

import msgspec

from twoshift.serve.http.http_error import HttpError
from twoshift.serve.http.messages import Reply, Request

__all__ = ["Framing", "framing_of"]


class Framing(msgspec.Struct, frozen=True, gc=False):
    """Where a reply ends, and whether the connection can be used after it."""

    keep: bool  # for further requests
    without_body: bool
    chunked: bool  # its pieces say themselves how long they are
    unread: bool  # some of the request is still to come


def framing_of(asked: Request | HttpError, reply: Reply, is_last: bool) -> Framing:
    """`is_last`: no request comes after this one."""
    if isinstance(asked, HttpError):
        unread, without_body, takes_chunks = True, False, False
    else:
        unread = asked.unread or (asked.stream is not None and not asked.stream.is_over)
        without_body, takes_chunks = asked.method == "HEAD", asked.takes_chunks
    open_end = reply.stream is not None and reply.stream_bytes is None
    chunked = open_end and takes_chunks
    keep = not (reply.close or unread or (open_end and not chunked) or is_last)
    return Framing(keep, without_body, chunked, unread)
