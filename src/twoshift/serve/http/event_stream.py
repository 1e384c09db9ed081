"""A reply in server-sent events, as a language model generates it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from twoshift.endpoints.faults import Fault, fault_of
from twoshift.endpoints.generating import GenerationCall
from twoshift.errors import TwoshiftError
from twoshift.generation import Delta
from twoshift.serve.llm.running import Running

__all__ = ["EventStream"]

_logger = logging.getLogger("twoshift.serve")
_GONE = Fault(499, "client_gone", "")  # as proxies count a client that did not wait for its reply
Ended = Callable[[int, Fault | None], object]


class EventStream:
    """Begun by `begin`, sent by whoever iterates it, freed by `aclose`, in whatever state that finds it."""

    def __init__(self, call: GenerationCall, running: Running, version: str) -> None:
        self.ended: Ended | None = None  # told the status once, at the end
        self._call, self._running, self._version = call, running, version
        self._deltas: AsyncGenerator[tuple[int, Delta]] = running.deltas()
        self._first: tuple[int, Delta] | None = None
        self._fault: Fault | None = _GONE  # until its end was sent

    async def begin(self) -> None:
        """Wait for the first token: what fails before it is an error like any other."""
        try:
            self._first = await anext(self._deltas)
        except BaseException:
            await self._deltas.aclose()
            self._running.close()
            raise

    def timing(self) -> bytes:
        """What Server-Timing can say by now."""
        stages = self._running.stages
        kept, stages.finish = stages.finish, 0.0
        header, stages.finish = stages.header(self._version), kept
        return header

    async def __aiter__(self) -> AsyncIterator[bytes]:
        events = self._call.events(self._running.tokens)
        try:
            if self._first is not None:
                yield events.begin() + events.more(*self._first)
            async for place, delta in self._deltas:
                if told := events.more(place, delta):
                    yield told
            self._fault = None
            yield events.end(self._running.usage(self._call.choices))
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except Exception as error:
            if not isinstance(error, TwoshiftError):
                _logger.exception("an event stream has failed")
            self._fault = fault_of(error)
            yield events.fail(self._fault)

    async def aclose(self) -> None:
        """Its sequences leave the device; it is counted."""
        await self._deltas.aclose()
        self._running.close()
        ended, self.ended = self.ended, None
        if ended is not None:
            ended(200 if self._fault is None else self._fault.status, self._fault)
