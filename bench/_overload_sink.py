"""A server that does nothing: it reads a request and answers a constant 503. `_overload_sink.py PORT`.

What a sender and the kernel take for requests that nobody works on, and so the cheapest refusal that there is here.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

_BODY = b'{"error":{"message":"%b","type":"overloaded","param":null,"code":"overloaded"}}' % (b"x" * 120)
_REPLY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nretry-after-ms: 50\r\ncontent-length: %d\r\n\r\n%b" % (
    len(_BODY),
    _BODY,
)


class _Sink(asyncio.Protocol):
    __slots__ = ("_head", "_left", "_write")

    def connection_made(self, transport: Any) -> None:
        self._write, self._head, self._left = transport.write, b"", 0

    def data_received(self, data: bytes) -> None:
        if self._left:
            self._left -= len(data)
        else:
            data = self._head + data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._head = data
                return
            at = data.find(b"content-length: ") + 16
            self._head, self._left = b"", end + 4 + int(data[at : data.find(b"\r", at)]) - len(data)
        if not self._left:
            self._write(_REPLY)


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Sink, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(int(sys.argv[1])))
