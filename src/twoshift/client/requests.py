"""What a client can ask of a server. Each function describes requests; nothing is sent here."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from twoshift.client.calls import RESTARTS, ApiCall, ApiReply, Flow, Pause, Upload, error_of_event, json_call
from twoshift.client.tensors import HEADER, read_tensors, write_tensors
from twoshift.client.values import Batch, Chunk, Completion, Embeddings, File, Inference, Job, Ranked, Reranking
from twoshift.errors import Broken, Late

__all__ = [
    "absolute", "cancel_batch", "cancel_job", "chat", "complete", "create_batch", "delete_file", "derived",
    "download_file", "embeddings", "get_batch", "get_job", "infer", "list_batches", "list_jobs", "models", "pause_job",
    "read_chunk", "request", "rerank", "resume_job", "stream_chat", "stream_complete", "submit_job", "upload_file",
    "wait_batch", "wait_job",
]  # fmt: skip

Messages = str | Sequence[Mapping[str, Any]]
_CHAT, _COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def request(method: str, path: str, body: Any = None) -> ApiCall[Any]:
    """Any path of the server: JSON in, JSON out."""
    return json_call(method, path, lambda found: found, body, repeatable=method == "GET")


def models() -> ApiCall[list[str]]:
    """The names of the models that are served."""
    return json_call("GET", "/v1/models", lambda found: [each["id"] for each in found["data"]])


def derived(model: str) -> ApiCall[dict[str, Any]]:
    """What follows from a model's objective: batch sizes, curves, capacity."""
    return json_call("GET", f"/v1/derived/{_quoted(model)}", dict)


def embeddings(
    model: str,
    input: str | Sequence[str],  # noqa: A002 - as the API has it
    *,
    dimensions: int | None = None,
    prompt_name: str | None = None,
) -> ApiCall[Embeddings]:
    """A vector for each text."""
    asked = {"model": model, "input": input if isinstance(input, str) else list(input), "encoding_format": "base64"}
    more = {"dimensions": dimensions, "prompt_name": prompt_name}
    return json_call("POST", "/v1/embeddings", _embeddings, asked | _given(more))


def rerank(model: str, query: str, documents: Sequence[str], *, top_n: int | None = None) -> ApiCall[Reranking]:
    """Documents by how well they answer the query, the best first."""
    asked = {"model": model, "query": query, "documents": list(documents)} | _given({"top_n": top_n})
    return json_call("POST", "/v1/rerank", _reranking, asked)


def infer(model: str, inputs: Mapping[str, ArrayLike], *, outputs: Sequence[str] | None = None) -> ApiCall[Inference]:
    """A model's outputs for these arrays, whose first axis is rows."""
    body, head_bytes = write_tensors(inputs, None if outputs is None else list(outputs))
    headers = {"content-type": "application/octet-stream", HEADER: str(head_bytes)}
    return ApiCall("POST", f"/v2/models/{_quoted(model)}/infer", _inference, body, headers)


def chat(model: str, messages: Messages, **options: Any) -> ApiCall[Completion]:
    """A language model's answer to messages, or to a text; `options` as in OpenAI's API: max_tokens, seed ..."""
    return json_call("POST", _CHAT, _completion, _chat_body(model, messages, options))


def stream_chat(model: str, messages: Messages, **options: Any) -> ApiCall[ApiReply]:
    """The same, piece by piece as it is generated."""
    return _streamed(_CHAT, _chat_body(model, messages, options))


def complete(model: str, prompt: str, **options: Any) -> ApiCall[Completion]:
    """How a language model goes on with a text; `options` as in OpenAI's API."""
    return json_call("POST", _COMPLETIONS, _completion, {"model": model, "prompt": prompt, **options})


def stream_complete(model: str, prompt: str, **options: Any) -> ApiCall[ApiReply]:
    """The same, piece by piece as it is generated."""
    return _streamed(_COMPLETIONS, {"model": model, "prompt": prompt, **options})


def submit_job(inputs: str | Sequence[str], *, model: str, output: str, **settings: Any) -> ApiCall[Job]:
    """Map a served model over a dataset in the idle time of its replicas; `settings` as in a job file.

    A file's name that does not begin at the root is one below the present folder: the server must see the same disk.
    """
    listed = [inputs] if isinstance(inputs, str) else inputs
    asked = {"inputs": [absolute(each) for each in listed], "model": model, "output": absolute(output)}
    return json_call("POST", "/v1/jobs", _job, asked | settings, repeatable=False)


def get_job(job: str | Job) -> ApiCall[Job]:
    """How far it is."""
    return json_call("GET", _job_path(job), _job, patience=RESTARTS)


def list_jobs(*, limit: int = 100, after: str | None = None) -> ApiCall[list[Job]]:
    """The newest first."""
    query = urlencode({"limit": limit} | _given({"after": after}))
    return json_call("GET", f"/v1/jobs?{query}", lambda found: [_job(each) for each in found["data"]])


def cancel_job(job: str | Job) -> ApiCall[Job]:
    """Stop it for good; what is committed is kept."""
    return json_call("POST", f"{_job_path(job)}/cancel", _job)


def pause_job(job: str | Job) -> ApiCall[Job]:
    """Stop it after the shards in work, until it is resumed."""
    return json_call("POST", f"{_job_path(job)}/pause", _job)


def resume_job(job: str | Job) -> ApiCall[Job]:
    """Continue one that was paused, or has failed."""
    return json_call("POST", f"{_job_path(job)}/resume", _job)


def wait_job(job: str | Job, *, timeout_s: float | None = None, poll_s: float = 0.5) -> Flow[Job]:
    """The job once it is over, however it ended; raises Late after `timeout_s`."""
    waited_s = 0.0
    while not (found := (yield get_job(job))).is_over:
        waited_s = yield from _turn(f"job {found.id} is {found.state}", waited_s, poll_s, timeout_s)
    return found


def upload_file(path: str | Path, *, purpose: str = "batch") -> Flow[File]:
    """A file of requests, one a line."""
    path = Path(path)
    with path.open("rb") as file:
        upload = Upload(path.name, file, {"purpose": purpose})
        return (yield ApiCall("POST", "/v1/files", _file, upload=upload, repeatable=False))


def download_file(file: str | File, path: str | Path) -> Flow[Path]:
    """A file of the server, written to `path`."""
    path, file_id = Path(path), file if isinstance(file, str) else file.id
    with path.open("wb") as opened:
        path_there = f"/v1/files/{_quoted(file_id)}/content"
        yield ApiCall("GET", path_there, lambda _reply: None, sink=opened.write, repeatable=False)
    return path


def delete_file(file: str | File) -> ApiCall[None]:
    """Remove it."""
    file_id = file if isinstance(file, str) else file.id
    return json_call("DELETE", f"/v1/files/{_quoted(file_id)}", lambda _found: None)


def create_batch(
    input_file: str | File, *, endpoint: str, completion_window: str = "24h", metadata: Mapping[str, str] | None = None
) -> ApiCall[Batch]:
    """Run a file of requests in the idle time of the server; the server takes an identical one only once."""
    file_id = input_file if isinstance(input_file, str) else input_file.id
    asked = {"input_file_id": file_id, "endpoint": endpoint, "completion_window": completion_window}
    more = {"metadata": None if metadata is None else dict(metadata)}
    return json_call("POST", "/v1/batches", _batch, asked | _given(more))


def get_batch(batch: str | Batch) -> ApiCall[Batch]:
    """How far it is."""
    return json_call("GET", _batch_path(batch), _batch, patience=RESTARTS)


def list_batches(*, limit: int = 20, after: str | None = None) -> ApiCall[list[Batch]]:
    """The newest first."""
    query = urlencode({"limit": limit} | _given({"after": after}))
    return json_call("GET", f"/v1/batches?{query}", lambda found: [_batch(each) for each in found["data"]])


def cancel_batch(batch: str | Batch) -> ApiCall[Batch]:
    """Stop it; what is done is kept."""
    return json_call("POST", f"{_batch_path(batch)}/cancel", _batch)


def wait_batch(batch: str | Batch, *, timeout_s: float | None = None, poll_s: float = 0.5) -> Flow[Batch]:
    """The batch once it is over, however it ended; raises Late after `timeout_s`."""
    waited_s = 0.0
    while not (found := (yield get_batch(batch))).is_over:
        waited_s = yield from _turn(f"batch {found.id} is {found.status}", waited_s, poll_s, timeout_s)
    return found


def read_chunk(line: str) -> Chunk | None:
    """A line of a streamed answer; None where it has nothing to say."""
    if not line.startswith("data:") or (data := line[5:].strip()) == "[DONE]":
        return None
    event = json.loads(data)
    if "error" in event:
        raise error_of_event(event["error"])
    choice = next(iter(event.get("choices", ())), {})
    usage = event.get("usage") or {}
    text = choice.get("text") or (choice.get("delta") or {}).get("content") or ""
    chunk = Chunk(text, choice.get("finish_reason"), usage.get("prompt_tokens"), usage.get("completion_tokens"))
    return None if chunk == Chunk("") else chunk


def _turn(why: str, waited_s: float, poll_s: float, timeout_s: float | None) -> Flow[float]:
    if timeout_s is not None and waited_s >= timeout_s:
        raise Late(f"{why}, and has not ended within the timeout of {timeout_s:g} s")
    yield Pause(poll_s)
    return waited_s + poll_s


def _streamed(path: str, body: dict[str, Any]) -> ApiCall[ApiReply]:
    sent = json.dumps(body | {"stream": True, "stream_options": {"include_usage": True}}).encode()
    return ApiCall("POST", path, lambda reply: reply, sent, {"content-type": "application/json"}, streams=True)


def _chat_body(model: str, messages: Messages, options: dict[str, Any]) -> dict[str, Any]:
    turns = [{"role": "user", "content": messages}] if isinstance(messages, str) else [dict(each) for each in messages]
    return {"model": model, "messages": turns, **options}


def _embeddings(found: Any) -> Embeddings:
    rows = sorted(found["data"], key=lambda each: each["index"])
    vectors = [np.frombuffer(base64.b64decode(each["embedding"]), "<f4") for each in rows]
    return Embeddings(found["model"], np.stack(vectors), found["usage"]["prompt_tokens"])


def _reranking(found: Any) -> Reranking:
    ranked = tuple(Ranked(each["index"], each["relevance_score"]) for each in found["results"])
    return Reranking(found["model"], ranked, found["usage"]["total_tokens"])


def _inference(reply: ApiReply) -> Inference:
    try:
        head_bytes = reply.headers.get(HEADER)
        head, outputs = read_tensors(reply.body, None if head_bytes is None else int(head_bytes))
    except (ValueError, KeyError) as error:
        raise Broken(f"the server's reply to an inference request cannot be decoded ({error!r})") from None
    return Inference(head["model_name"], str(head.get("model_version", "")), outputs)


def _completion(found: Any) -> Completion:
    choice, usage = found["choices"][0], found["usage"]
    text = choice["text"] if "text" in choice else choice["message"]["content"]
    tokens = usage["prompt_tokens"], usage["completion_tokens"]
    return Completion(found["model"], text, choice["finish_reason"], *tokens, found)


def _job(found: Any) -> Job:
    return msgspec.convert(found, Job)


def _batch(found: Any) -> Batch:
    return msgspec.convert(found, Batch)


def _file(reply: ApiReply) -> File:
    return msgspec.json.decode(reply.body, type=File)


def _job_path(job: str | Job) -> str:
    return f"/v1/jobs/{_quoted(job if isinstance(job, str) else job.id)}"


def _batch_path(batch: str | Batch) -> str:
    return f"/v1/batches/{_quoted(batch if isinstance(batch, str) else batch.id)}"


def absolute(location: str) -> str:
    """A name that means the same from anywhere on this machine."""
    if "://" in location:
        return location
    listed, path = ("@", location[1:]) if location.startswith("@") else ("", location)
    return f"{listed}{Path(path).absolute()}"


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
