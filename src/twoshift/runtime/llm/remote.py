"""A language model behind somebody else's server that speaks OpenAI's protocol."""

from __future__ import annotations

import contextlib
import os
import queue
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

from twoshift.errors import Broken, Inapplicable, InvalidInput
from twoshift.generation import GenerationRequest, Message, is_conversation
from twoshift.llm_ports import Emitted, LlmShape, Prompt, Prompts, Step
from twoshift.ports import RuntimeInfo
from twoshift.runtime.artifacts import checksum_of_bytes
from twoshift.runtime.llm.adapters import check_adapter
from twoshift.runtime.llm.openai_wire import Endpoint, StreamedAnswer
from twoshift.runtime.llm.options import LlmOptions
from twoshift.types import Tensor

__all__ = ["KEY", "RemoteRuntime", "is_address", "load_remote"]

KEY = "OPENAI_API_KEY"  # in the environment
_CONTEXT, _SEQUENCES = 8192, 64  # of a server that does not say
_STEP_S = 0.05  # that is waited for something new
_BYTES_PER_TOKEN = 4  # about: the server's own tokenizer is not here
_KV_EVERY_S = 1.0


def is_address(model: str) -> bool:
    """Whether it names a model on a server: http://host:port/v1#name."""
    return model.startswith(("http://", "https://"))


def load_remote(model: str, options: LlmOptions) -> RemoteRuntime:
    """The model `name` of `http://host:port/v1#name`, which is there; raises InvalidInput, TryLater."""
    address, _, name = model.partition("#")
    if not urlsplit(address).hostname:
        raise InvalidInput("model", model, "an address http://HOST:PORT/v1#MODEL, with the name of a model after #")
    if options.tool_parser is not None:
        raise Inapplicable("tool_parser", options.tool_parser, "because the remote server uses its own tool parser")
    if options.adapters:
        given = ", ".join(options.adapters.values())
        raise Inapplicable(
            "adapter", given, "with a remote model: instead, write the adapter's name after # in the model's URL"
        )
    endpoint = Endpoint(address.rstrip("/"), name, os.environ.get(KEY))
    context = options.context_tokens or endpoint.check() or _CONTEXT
    return RemoteRuntime(endpoint, model, context, options.max_sequences or _SEQUENCES)


@dataclass(slots=True)
class _Running:
    reply: StreamedAnswer
    last_s: float | None = None  # when its last token came


class RemoteRuntime:
    """A connection a sequence. Tokens are counted as pieces of text as they come, and exactly at the end.

    What a step takes is the time between two pieces of one sequence: the server's own steps are not seen.
    """

    def __init__(self, endpoint: Endpoint, model: str, context_tokens: int, sequences: int) -> None:
        where = urlsplit(endpoint.address)
        self.info = RuntimeInfo(
            model=model,
            checksum=checksum_of_bytes(model.encode()),  # its weights are not to be seen
            runtime="openai",
            device=f"server: {where.netloc}",
            precision="unknown",
            max_row_tokens=context_tokens,
            outputs=("text", "finish_reason", "output_tokens"),
            live_stream=True,
            inputs=(Tensor("prompt", "text"),),
        )
        kv_tokens = context_tokens * sequences  # its own scheduler knows better, and queues what does not fit
        self.shape = LlmShape(context_tokens, kv_tokens, 32, context_tokens, sequences, continues=False)
        self._endpoint = endpoint
        self._events: queue.SimpleQueue[Emitted] = queue.SimpleQueue()
        self._running: dict[int, _Running] = {}
        self._threads = ThreadPoolExecutor(sequences, "twoshift-openai")
        self._kv_use, self._kv_due_s = 0.0, 0.0

    def prepare(self, rows: Sequence[GenerationRequest]) -> Prompts:
        """The server does it; what prompts share is seen by their bytes."""
        return Prompts(tuple(self._prompt(row) for row in rows))

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Never asked: a sequence that was taken out begins anew."""
        raise Broken("token ids cannot be decoded, because the tokenizer of this model is on another server")

    def add(self, key: int, prompt: Prompt, live: bool) -> None:
        """Begin to stream it."""
        assert prompt.request is not None  # noqa: S101 - `prepare` was here
        reply = StreamedAnswer(self._endpoint, key, prompt.request, prompt.max_tokens, self._events.put)
        self._running[key] = _Running(reply)
        self._threads.submit(reply.run)

    def abort(self, keys: Sequence[int]) -> None:
        """Hang up: the server frees what they hold."""
        for key in keys:
            if (running := self._running.pop(key, None)) is not None:
                running.reply.cancel()

    def step(self, prefill_tokens: int | None = None) -> Step:
        """What has come in since; prompts are read as the server likes."""
        if not self._running:
            return Step(kv_use=self._kv())
        emitted = list[Emitted]()
        with contextlib.suppress(queue.Empty):
            emitted.append(self._events.get(timeout=_STEP_S))
            while True:
                emitted.append(self._events.get_nowait())
        return self._step([each for each in emitted if each.key in self._running])

    def close(self) -> None:
        """Hang up."""
        self.abort(list(self._running))
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _step(self, emitted: list[Emitted]) -> Step:
        now_s, gaps, tokens = time.monotonic(), list[float](), dict[int, int]()
        for each in emitted:
            running = self._running.get(each.key)
            if running is None:
                continue
            tokens[each.key] = tokens.get(each.key, 0) + len(each.token_ids)
            if running.last_s is not None and tokens[each.key] == 1:
                gaps.append(now_s - running.last_s)
            running.last_s = now_s
            if each.finish is not None or each.error is not None:
                del self._running[each.key]
        counted = {key: count for key, count in tokens.items() if count}
        seconds = statistics.median(gaps) if gaps and counted else None
        return Step(tuple(emitted), counted, seconds, self._kv())

    def _kv(self) -> float:
        if time.monotonic() >= self._kv_due_s:
            self._kv_use, self._kv_due_s = self._endpoint.kv_use(), time.monotonic() + _KV_EVERY_S
        return self._kv_use

    def _prompt(self, row: GenerationRequest) -> Prompt:
        if row.params.logprobs is not None:
            raise Inapplicable(
                "logprobs", row.params.logprobs, "because this model runs on another server, which returns no logprobs"
            )
        check_adapter(row.adapter, self.info.model, {})
        ids = _ids(row.prompt) or (0,)
        most = max(1, self.shape.context_tokens - len(ids))
        return Prompt(ids, row.params, min(most, row.params.max_tokens or most), request=row)


def _ids(prompt: tuple[Message, ...] | str | tuple[int, ...]) -> tuple[int, ...]:
    """About as many as the server will see, and the same where prompts begin alike."""
    if isinstance(prompt, str):
        given = prompt
    elif is_conversation(prompt):
        given = "\n".join(f"{each.role}: {each.text}" for each in prompt)
    else:
        return tuple(each for each in prompt if isinstance(each, int))
    text = given.encode("utf-8", "backslashreplace")
    return tuple(int.from_bytes(text[at : at + _BYTES_PER_TOKEN]) for at in range(0, len(text), _BYTES_PER_TOKEN))
