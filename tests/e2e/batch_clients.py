"""What tests of batches share: files of requests, OpenAI's own client, and what must hold at the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from servers import Server, until

__all__ = ["OVER", "client_of", "ended", "lines_of", "outcome", "request_line", "started"]

OVER = ("completed", "failed", "expired", "cancelled")


def client_of(server: Server, key: str = "none") -> Any:
    """OpenAI's; it tries nothing twice, so that a test sees what happens."""
    import openai

    return openai.OpenAI(base_url=f"{server.address}/v1", api_key=key, max_retries=0)


def request_line(custom_id: str, model: str, given: Any, url: str = "/v1/embeddings", **more: Any) -> bytes:
    """A request."""
    body = {"model": model, "input": given, **more}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body}).encode() + b"\n"


def started(client: Any, lines: Iterable[bytes], window: str = "24h", **more: Any) -> Any:
    """A batch of these."""
    file = client.files.create(file=("requests.jsonl", b"".join(lines)), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint="/v1/embeddings", completion_window=window, **more)


def ended(client: Any, batch_id: str) -> Any:
    """The batch, once it is over."""
    until(lambda: client.batches.retrieve(batch_id).status in OVER)
    return client.batches.retrieve(batch_id)


def lines_of(client: Any, file_id: str | None) -> list[Any]:
    """Of an output or error file."""
    return [] if file_id is None else [json.loads(line) for line in client.files.content(file_id).text.splitlines()]


def outcome(client: Any, batch: Any, ids: Iterable[str]) -> tuple[list[Any], list[Any]]:
    """Both files; every id is in one of them, once, and the counts are theirs."""
    output, errors = lines_of(client, batch.output_file_id), lines_of(client, batch.error_file_id)
    assert Counter(line["custom_id"] for line in (*output, *errors)) == Counter(list(ids))
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (len(output) + len(errors), len(output), len(errors))
    assert all(line["response"]["status_code"] == 200 and line["error"] is None for line in output)
    return output, errors
