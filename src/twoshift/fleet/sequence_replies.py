"""A replica's side of sequences: begun, sent on as they are generated, ended once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from twoshift.error_codec import encode_error
from twoshift.errors import TwoshiftError
from twoshift.fleet.wire import Begun, FromReplica, Generate, Refused, Tokens, prompts_of
from twoshift.serve.llm.model import ServedLlm

__all__ = ["SequenceReplies"]

_logger = logging.getLogger("twoshift.fleet")


class SequenceReplies:
    """Of one language model, to one front."""

    def __init__(self, model: ServedLlm, reply: Callable[[FromReplica], None]) -> None:
        self._model, self._reply = model, reply

    async def answer(self, asked: Generate) -> None:
        """From its admission to its last token, or what comes instead."""
        arrived_s = time.monotonic() - asked.waited_s
        try:
            running = await self._model.begin(prompts_of(asked), asked.timeout_s, arrived_s, lambda: None, asked.tenant)
            try:
                self._reply(Begun(asked.id, running.tokens, running.stages.prepare))
                async for place, delta in running.deltas():
                    self._reply(Tokens(asked.id, place, delta))
            finally:
                running.close()
        except asyncio.CancelledError:
            return
        except BaseException as error:  # a library's panic is no Exception, and its request wants a reply, too
            if not isinstance(error, TwoshiftError):
                _logger.exception("a request has failed on a replica")
            self._reply(Refused([asked.id], encode_error(error)))
