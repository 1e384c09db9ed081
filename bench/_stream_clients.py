"""Clients that read streamed answers in a closed loop, in a process of their own: `python _stream_clients.py` with

    {"port": 8000, "clients": 256, "seconds": 20.0, "bodies": ["{...}", ...]}

on its input. Bodies are asked for in turn, again from the first after the last.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Iterator
from typing import Any

_LAST_CHUNK = b"\r\n0\r\n\r\n"
_PAUSE_S = 0.05


async def _client(port: int, bodies: Iterator[bytes]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    while True:
        body = next(bodies)
        writer.write(head % len(body) + body)
        fields = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = fields.partition(b"content-length:")[2].partition(b"\r\n")[0]
        await (reader.readexactly(int(length)) if length else reader.readuntil(_LAST_CHUNK))
        if not fields.startswith(b"http/1.1 200"):
            await asyncio.sleep(_PAUSE_S)


async def _run(asked: dict[str, Any]) -> None:
    bodies = itertools.cycle([each.encode() for each in asked["bodies"]])
    clients = [asyncio.create_task(_client(asked["port"], bodies)) for _ in range(asked["clients"])]
    done, _ = await asyncio.wait(clients, timeout=asked["seconds"], return_when=asyncio.FIRST_EXCEPTION)
    for each in done:
        each.result()
    for each in clients:
        each.cancel()


if __name__ == "__main__":
    asyncio.run(_run(json.load(sys.stdin)))
