"""A client of `twoshift serve`: `Client` blocks, `AsyncClient` is awaited; both have the same methods."""

from __future__ import annotations

from typing import Self

from twoshift.client import requests
from twoshift.client.transport import (
    Asynchronous,
    AsyncTransport,
    Blocking,
    Transport,
    asynchronous,
    asynchronous_stream,
    blocking,
    blocking_stream,
)

__all__ = ["AsyncClient", "Client"]


class Jobs(Blocking):
    """Jobs of a server."""

    submit = blocking(requests.submit_job)
    get = blocking(requests.get_job)
    list = blocking(requests.list_jobs)
    wait = blocking(requests.wait_job)
    cancel = blocking(requests.cancel_job)
    pause = blocking(requests.pause_job)
    resume = blocking(requests.resume_job)


class Files(Blocking):
    """Files of a server."""

    upload = blocking(requests.upload_file)
    download = blocking(requests.download_file)
    delete = blocking(requests.delete_file)


class Batches(Blocking):
    """Batches of a server."""

    create = blocking(requests.create_batch)
    get = blocking(requests.get_batch)
    list = blocking(requests.list_batches)
    wait = blocking(requests.wait_batch)
    cancel = blocking(requests.cancel_batch)


class Client(Blocking):
    """A server, asked from any thread. Errors are those of twoshift.errors; overload is retried after its pause."""

    request = blocking(requests.request)
    models = blocking(requests.models)
    derived = blocking(requests.derived)
    embeddings = blocking(requests.embeddings)
    rerank = blocking(requests.rerank)
    infer = blocking(requests.infer)
    chat = blocking(requests.chat)
    stream_chat = blocking_stream(requests.stream_chat)
    complete = blocking(requests.complete)
    stream_complete = blocking_stream(requests.stream_complete)

    def __init__(
        self, url: str | None = None, *, key: str | None = None, timeout_s: float = 60.0, max_retries: int = 2
    ) -> None:
        """`url` is TWOSHIFT_SERVER by default, and `key` TWOSHIFT_KEY."""
        super().__init__(Transport(url, key=key, timeout_s=timeout_s, max_retries=max_retries))
        self.url = self._transport.url
        self.jobs, self.files, self.batches = Jobs(self._transport), Files(self._transport), Batches(self._transport)

    def close(self) -> None:
        """Close its connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncJobs(Asynchronous):
    """Jobs of a server."""

    submit = asynchronous(requests.submit_job)
    get = asynchronous(requests.get_job)
    list = asynchronous(requests.list_jobs)
    wait = asynchronous(requests.wait_job)
    cancel = asynchronous(requests.cancel_job)
    pause = asynchronous(requests.pause_job)
    resume = asynchronous(requests.resume_job)


class AsyncFiles(Asynchronous):
    """Files of a server."""

    upload = asynchronous(requests.upload_file)
    download = asynchronous(requests.download_file)
    delete = asynchronous(requests.delete_file)


class AsyncBatches(Asynchronous):
    """Batches of a server."""

    create = asynchronous(requests.create_batch)
    get = asynchronous(requests.get_batch)
    list = asynchronous(requests.list_batches)
    wait = asynchronous(requests.wait_batch)
    cancel = asynchronous(requests.cancel_batch)


class AsyncClient(Asynchronous):
    """`Client`, awaited."""

    request = asynchronous(requests.request)
    models = asynchronous(requests.models)
    derived = asynchronous(requests.derived)
    embeddings = asynchronous(requests.embeddings)
    rerank = asynchronous(requests.rerank)
    infer = asynchronous(requests.infer)
    chat = asynchronous(requests.chat)
    stream_chat = asynchronous_stream(requests.stream_chat)
    complete = asynchronous(requests.complete)
    stream_complete = asynchronous_stream(requests.stream_complete)

    def __init__(
        self, url: str | None = None, *, key: str | None = None, timeout_s: float = 60.0, max_retries: int = 2
    ) -> None:
        """`url` is TWOSHIFT_SERVER by default, and `key` TWOSHIFT_KEY."""
        super().__init__(AsyncTransport(url, key=key, timeout_s=timeout_s, max_retries=max_retries))
        self.url = self._transport.url
        self.jobs, self.files = AsyncJobs(self._transport), AsyncFiles(self._transport)
        self.batches = AsyncBatches(self._transport)

    async def close(self) -> None:
        """Close its connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
