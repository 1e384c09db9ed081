"""ModelStreamInfer: requests that come over one call, answered side by side and in their order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from twoshift.endpoints.faults import Fault, fault_of
from twoshift.serve.grpc.calls import GrpcCall, Method, abort, admit, begun, counted, settled
from twoshift.serve.grpc.messages import message
from twoshift.serve.keys import Keys

__all__ = ["Streams"]

_NAME = "ModelStreamInfer"
_AHEAD = 64  # requests of one stream that are worked on at a time
_STOPPED = Fault(503, "overloaded", "the server is shutting down; try again in 1 s", retry_after_s=1.0)
_Reply = message("ModelStreamInferResponse")
_Task = asyncio.Task[Any]


class Streams:
    """The streams that are open."""

    def __init__(self, infer: Method, keys: Keys) -> None:
        self._infer, self._keys = infer, keys
        self._readers: set[_Task] = set()
        self._stopping = False

    async def handler(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """One stream, as gRPC calls it; an error ends its request, not the stream."""
        call = begun(_NAME, context)
        try:
            admit(call, self._keys)
        except Exception as error:
            await abort(call, fault := fault_of(error), counted(call, fault))
        waiting: asyncio.Queue[_Task | None] = asyncio.Queue(_AHEAD)
        running: set[_Task] = set()
        reader = asyncio.create_task(self._read(requests, call, waiting, running))
        self._readers.add(reader)
        try:
            while (task := await waiting.get()) is not None:
                yield await task
        finally:
            self._readers.discard(reader)
            for each in (reader, *running):
                each.cancel()
        if self._stopping:
            await abort(call, _STOPPED, counted(call, _STOPPED))

    def stop(self) -> None:
        """Read no more requests; a stream ends when those that it has read are answered."""
        self._stopping = True
        for reader in self._readers:
            reader.cancel()

    async def _read(
        self, requests: AsyncIterator[Any], call: GrpcCall, waiting: asyncio.Queue[_Task | None], running: set[_Task]
    ) -> None:
        try:
            async for request in requests:
                if self._stopping:
                    break
                task = asyncio.create_task(self._one(request, call))
                running.add(task)
                task.add_done_callback(running.discard)
                await waiting.put(task)
        finally:
            await waiting.put(None)

    async def _one(self, request: Any, stream: GrpcCall) -> Any:
        call = begun(_NAME, stream.context)
        call.caller = stream.caller
        reply, fault, _ = await settled(_NAME, self._infer, request, call, None)
        if fault is not None:
            return _Reply(error_message=fault.message, infer_response={"id": request.id})
        # Triton's clients of models that answer a request many times wait for the one that says it is the last
        reply.parameters["triton_final_response"].bool_param = True
        return _Reply(infer_response=reply)
