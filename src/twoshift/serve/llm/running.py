"""The sequences of one request: read as they come, freed whatever happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from twoshift.endpoints.chat_types import GenerationUsage
from twoshift.endpoints.generating import usage_of
from twoshift.engine.llm import TokenStream
from twoshift.errors import Late
from twoshift.generation import Delta, TokenUsage, ToolCallDelta, joined_calls
from twoshift.serve.stages import Stages

__all__ = ["Running"]


class Running:
    """To be read once, and to be closed. Of one loop."""

    def __init__(
        self,
        streams: Sequence[TokenStream],
        tokens: int,
        stages: Stages,
        left: Callable[[], None],
        began_s: float | None = None,
    ) -> None:
        """`tokens` are of all prompts; `left` is told once it is closed; None: it begins to wait now."""
        self.tokens, self.stages = tokens, stages
        self.version = ""  # of the model that answers
        self._streams, self._left = streams, left
        self._usage: dict[int, TokenUsage] = {}
        self._began_s = time.monotonic() if began_s is None else began_s
        self._first_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._copying: tuple[list[str], Callable[[list[str]], None]] | None = None

    def copy_to(self, take: Callable[[list[str]], None]) -> None:
        """The whole texts go there, too, where all of them come to their end."""
        self._copying = [""] * len(self._streams), take

    def end_by(self, deadline_s: float) -> None:
        """What has not come by then is not waited for."""
        left_s = max(0.0, deadline_s - time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(left_s, self._late)

    def _late(self) -> None:
        for stream in self._streams:
            stream.cancel(Late("the request was not answered by its deadline"))

    async def deltas(self) -> AsyncGenerator[tuple[int, Delta]]:
        """Of every row, with its place, as they come; raises what has ended one of them."""
        try:
            async for place, delta in _merged(self._streams):
                self._took(place, delta)
                yield place, delta
        finally:
            self.close()

    async def whole(self) -> list[dict[str, Any]]:
        """The answers, as rows of the model's columns."""
        texts, logprobs = [""] * len(self._streams), [list[Any]() for _ in self._streams]
        ends: list[dict[str, Any]] = [{} for _ in self._streams]
        calls = [list[ToolCallDelta]() for _ in self._streams]
        async for place, delta in self.deltas():
            texts[place] += delta.text
            logprobs[place] += delta.logprobs
            calls[place] += delta.tool_calls
            ends[place] = {"finish_reason": str(delta.finish or ""), "stopped_by": delta.stopped_by}
        return [
            {"text": texts[k], "logprobs": logprobs[k], "tool_calls": joined_calls(calls[k]), **ends[k], **row}
            for k, row in enumerate(self._counted())
        ]

    def usage(self, choices: int) -> GenerationUsage:
        """What all of it took, once it is there."""
        return usage_of(self._counted(), self.tokens, choices)

    def close(self) -> None:
        """Whatever is left leaves the device before its next step."""
        if self._timer is not None:
            self._timer.cancel()
        for stream in self._streams:
            stream.cancel()
        left, self._left = self._left, lambda: None
        left()

    def _took(self, place: int, delta: Delta) -> None:
        now_s = time.monotonic()
        if self._first_s is None:
            self._first_s, self.stages.queue = now_s, now_s - self._began_s
        self.stages.forward = now_s - self._first_s
        self.stages.finish = -now_s  # until the reply is made
        if self._copying is not None:
            self._copying[0][place] += delta.text
        if delta.usage is not None:
            self._usage[place] = delta.usage
            if self._copying is not None and len(self._usage) == len(self._streams):
                (texts, take), self._copying = self._copying, None
                take(texts)

    def _counted(self) -> list[dict[str, Any]]:
        found = [self._usage[place] for place in range(len(self._streams))]
        return [{"output_tokens": each.completion_tokens, "cached_tokens": each.cached_tokens} for each in found]


async def _merged(streams: Sequence[TokenStream]) -> AsyncGenerator[tuple[int, Delta]]:
    if len(streams) == 1:  # as most requests are
        async for delta in streams[0]:
            yield 0, delta
        return
    readers = [aiter(stream) for stream in streams]
    waits = {asyncio.ensure_future(anext(reader)): place for place, reader in enumerate(readers)}
    try:
        while waits:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                place = waits.pop(each)
                delta = each.result()
                if delta.finish is None:
                    waits[asyncio.ensure_future(anext(readers[place]))] = place
                yield place, delta
    finally:
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
