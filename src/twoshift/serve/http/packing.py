"""Replies packed with gzip or deflate, for clients that ask."""

from __future__ import annotations

import asyncio
import zlib

from twoshift.serve.http.messages import Reply

__all__ = ["packed"]

_LEAST_BYTES = 1024  # smaller ones fit a packet as they are
_INLINE_BYTES = 64 << 10  # more take longer than a thread's hand-over
_LEVEL = 1  # numbers hardly get smaller with more
_WINDOW_BITS = {b"gzip": 16 + zlib.MAX_WBITS, b"deflate": zlib.MAX_WBITS}  # HTTP's deflate has zlib's header


async def packed(reply: Reply, accepted: bytes | None) -> Reply:
    """The reply, packed where its client takes that and it is worth it."""
    encoding = None if accepted is None or len(reply.body) < _LEAST_BYTES else _chosen(accepted)
    if encoding is None:
        return reply
    if len(reply.body) <= _INLINE_BYTES:
        reply.body = _compressed(reply.body, _WINDOW_BITS[encoding])
    else:
        bits = _WINDOW_BITS[encoding]
        reply.body = await asyncio.get_running_loop().run_in_executor(None, _compressed, reply.body, bits)
    reply.headers += [(b"content-encoding", encoding), (b"vary", b"accept-encoding")]
    return reply


def _chosen(accepted: bytes) -> bytes | None:
    named = [each.partition(b";") for each in accepted.lower().replace(b" ", b"").split(b",")]
    allowed = {name for name, _, weight in named if weight.removeprefix(b"q=").strip(b"0.") or not weight}
    return next((each for each in _WINDOW_BITS if each in allowed), None)


def _compressed(body: bytes, window_bits: int) -> bytes:
    packer = zlib.compressobj(_LEVEL, wbits=window_bits)
    return packer.compress(body) + packer.flush()
