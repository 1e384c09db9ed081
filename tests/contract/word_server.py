"""A server that speaks OpenAI's protocol and answers with the words of the question, one a piece."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["WordServer", "word_server"]

PAUSE_S = 0.002  # between words, so that each comes by itself


class WordServer(ThreadingHTTPServer):
    """The model `words`; it says no word while `going` is not set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.going = threading.Event()
        self.going.set()
        self.asked = Counter[str]()  # how often, by question
        self.keys = set[str]()  # that were shown

    @property
    def model(self) -> str:
        """As `--model` has it."""
        return f"http://127.0.0.1:{self.server_port}/v1#words"


class _Handler(BaseHTTPRequestHandler):
    @property
    def _words(self) -> WordServer:
        assert isinstance(self.server, WordServer)
        return self.server

    def do_GET(self) -> None:
        if self.path != "/v1/models":
            self.send_error(404)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"data": [{"id": "words", "max_model_len": 512}]}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = body["messages"][-1]["content"]
        self._words.asked[text] += 1
        self._words.keys.add(self.headers.get("Authorization", ""))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        words = text.split()
        try:
            for word in words:
                self._words.going.wait(120)
                time.sleep(PAUSE_S)
                self._event({"choices": [{"delta": {"content": f"{word} "}, "finish_reason": None}]})
            self._event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
            self._event({"choices": [], "usage": {"prompt_tokens": len(words), "completion_tokens": len(words)}})
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:  # whoever asked is gone
            return

    def _event(self, data: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(data).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called there
        pass


@contextmanager
def word_server() -> Iterator[WordServer]:
    """One, as long as it is needed."""
    with WordServer() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        try:
            yield made
        finally:
            made.going.set()
            made.shutdown()
            thread.join()
