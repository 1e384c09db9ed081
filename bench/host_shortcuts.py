"""What two shortcuts of a live request save: heads that were seen before, and tokens of words that were seen before.

CPU time of one thread, with and without each, by turns; nothing is served. They stay as long as this shows a gain.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any, cast
from unittest import mock

from twoshift.runtime.encoder.folder import read_minilm
from twoshift.runtime.encoder.tokens import TextTokenizer
from twoshift.serve.http.heads import Heads
from twoshift.serve.http.messages import Request
from twoshift.serve.http.peers import HttpLimits, Peers
from twoshift.serve.http.reading import Reading

QUERY = "how do i keep the tail latency of a small model low while a batch job runs"


class Taker:
    """Takes requests, and does nothing with them."""

    address = "127.0.0.1"

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_: None


class Forgetful(Heads):
    """Every head is parsed."""

    def learn(self, data: bytes, request: Request) -> None:
        pass


def request() -> bytes:
    """As openai-python sends it."""
    body = json.dumps({"model": "minilm", "input": QUERY, "encoding_format": "base64"}).encode()
    names = ("arch", "async", "lang", "os", "package-version", "retry-count", "runtime", "runtime-version")
    more = "".join(f"x-stainless-{name}: something\r\n" for name in names)
    head = "POST /v1/embeddings HTTP/1.1\r\nhost: 127.0.0.1:8000\r\naccept: application/json\r\n"
    head += f"user-agent: OpenAI/Python\r\nauthorization: Bearer none\r\ncontent-type: application/json\r\n{more}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def reading() -> dict[str, Callable[[], Any]]:
    """A whole request from bytes to what a handler takes."""
    peers, data, taker = Peers(HttpLimits()), request(), cast(Any, Taker())
    Reading(peers, taker, time.monotonic).feed(data)  # which teaches the head
    parser = Reading(Peers(HttpLimits(), heads=Forgetful()), taker, time.monotonic)

    def known() -> Request:
        found = peers.heads.find(data)
        assert found is not None
        (method, target, headers, _), body = found
        return Request(method, target, headers, body, time.monotonic())

    return {"with": known, "without": lambda: parser.feed(data)}


def tokenizing() -> dict[str, Callable[[], Any]]:
    """A query to its token ids."""
    fast, slow = (TextTokenizer(read_minilm(), True) for _ in range(2))
    fast.rows([QUERY])  # which teaches the words
    mock.patch.object(slow, "_words", mock.Mock(of=lambda _text: None)).start()
    assert fast.rows([QUERY]).ids.tolist() == slow.rows([QUERY]).ids.tolist()
    return {"with": lambda: fast.rows([QUERY]), "without": lambda: slow.rows([QUERY])}


def microseconds(work: Callable[[], Any], calls: int) -> float:
    """Of this thread's CPU, for a call."""
    began_s = time.thread_time()
    for _ in range(calls):
        work()
    return (time.thread_time() - began_s) / calls * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=5000, help="of a turn")
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    for name, ways in {"heads (serve/http/heads.py)": reading(), "words (encoder/words.py)": tokenizing()}.items():
        turns = [{way: microseconds(work, options.calls) for way, work in ways.items()} for _ in range(options.turns)]
        took = {way: statistics.median(each[way] for each in turns) for way in ways}
        saved = took["without"] - took["with"]
        print(
            f"{name:30} with {took['with']:6.1f} us, without {took['without']:6.1f} us: saves {saved:5.1f} us a request"
        )


if __name__ == "__main__":
    main()
