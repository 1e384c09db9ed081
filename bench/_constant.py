"""The physical floor: Twoshift's own HTTP server with a handler that returns a constant. `_constant.py PORT BYTES`."""

from __future__ import annotations

import asyncio
import sys

from twoshift.serve.http.http_error import HttpError
from twoshift.serve.http.messages import Reply, Request
from twoshift.serve.http.server import HttpServer


async def serve(port: int, body_bytes: int) -> None:
    body = b'"%b"' % (b"x" * (body_bytes - 2))

    async def handle(_request: Request) -> Reply:
        return Reply(200, body)

    def refuse(error: HttpError) -> Reply:
        return Reply(error.status, close=True)

    await HttpServer(handle, refuse).start("127.0.0.1", port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(*map(int, sys.argv[1:])))
