"""Qdrant: points are upserted under ids that follow from their keys, and then the part is marked.

It has no transactions: a kill between the two repeats the upsert of one part, which changes nothing.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from twoshift.batch.stores.columns import Column, check_columns, kind_of_values
from twoshift.batch.stores.rows import KeyedRows, without_nan
from twoshift.batch.stores.table import MARKS, LoadedPart, StoreTable
from twoshift.errors import InvalidInput, TryLater, first_line
from twoshift.extras import needed

__all__ = ["QdrantStore"]

_RETRY_S = 30.0
_TIMEOUT_S = 60
_POINTS = 256  # of a request: the bytes of one are limited
_PAGE = 1024


class QdrantStore:
    """A Store. The collection is the table: vectors have the names of their columns, all else is payload."""

    def __init__(self, url: str | None, path: str | None) -> None:
        """A server's address, or a folder that is used without a server."""
        module = needed("qdrant_client", "qdrant", "--into", "into")
        self._models, self._place = module.models, url or path or ""
        with self._told():
            self._client = (
                module.QdrantClient(path=path)
                if url is None
                else module.QdrantClient(url=url, api_key=os.environ.get("QDRANT_API_KEY"), timeout=_TIMEOUT_S)
            )

    def check(self, table: StoreTable) -> None:
        """Looks at the collection's vectors; a payload can have anything."""
        with self._told():
            if self._client.collection_exists(table.name):
                self._check(table)

    def create(self, table: StoreTable) -> None:
        """Cosine distance, which most encoders are made for."""
        with self._told():
            if not self._client.collection_exists(MARKS):
                self._client.create_collection(MARKS, vectors_config={})
            if self._client.collection_exists(table.name):
                self._check(table)
                return
            sizes = {name: table.schema.field(name).type.list_size for name in table.vectors}
            near = self._models.Distance.COSINE
            config = {name: self._models.VectorParams(size=size, distance=near) for name, size in sizes.items()}
            self._client.delete(MARKS, self._marked("table_name", table.name))
            self._client.create_collection(table.name, vectors_config=config)

    def loaded(self, table: StoreTable, job: str) -> Mapping[int, LoadedPart]:
        """From the marks."""
        found, offset = dict[int, LoadedPart](), None
        with self._told():
            while True:
                asked = self._marked("job", job)
                points, offset = self._client.scroll(MARKS, scroll_filter=asked, limit=_PAGE, offset=offset)
                for each in (point.payload for point in points if point.payload["table_name"] == table.name):
                    found[each["shard"]] = LoadedPart(each["rows"], each["new_rows"], each["keyless"])
                if offset is None:
                    return found

    def load(self, table: StoreTable, part: KeyedRows) -> LoadedPart:
        """Repeated, it does the same again."""
        with self._told():
            before = self._client.count(table.name, exact=True).count
            for chunk in part.chunks():
                for batch in without_nan(chunk, table.vectors).to_batches(_POINTS):
                    self._client.upsert(table.name, self._points(table, batch), wait=True)
            done = part.loaded(self._client.count(table.name, exact=True).count - before)
            payload = {
                "job": part.job, "table_name": table.name, "shard": part.shard, "rows": done.rows,
                "new_rows": done.new_rows, "keyless": done.keyless,
            }  # fmt: skip
            point = self._models.PointStruct(
                id=_id(f"{part.job}/{table.name}/{part.shard}"), vector={}, payload=payload
            )
            self._client.upsert(MARKS, [point], wait=True)
        return done

    def close(self) -> None:
        """A folder has a lock."""
        self._client.close()

    def _points(self, table: StoreTable, batch: pa.RecordBatch) -> list[Any]:
        vectors = {name: batch.column(name).to_pylist() for name in table.vectors}
        plain = [name for name in table.schema.names if name not in vectors]
        payloads = batch.select(plain).to_pylist()
        keys = batch.column(table.key).to_pylist()
        is_number = pa.types.is_integer(table.schema.field(table.key).type)
        return [
            self._models.PointStruct(
                id=key if is_number and key >= 0 else _id(str(key)),
                vector={name: column[at] for name, column in vectors.items() if column[at] is not None},
                payload={name: _plain(value) for name, value in payloads[at].items()},
            )
            for at, key in enumerate(keys)
        ]

    def _marked(self, name: str, value: str) -> Any:
        match = self._models.MatchValue(value=value)
        return self._models.Filter(must=[self._models.FieldCondition(key=name, match=match)])

    def _check(self, table: StoreTable) -> None:
        vectors = self._client.get_collection(table.name).config.params.vectors
        named = vectors if isinstance(vectors, dict) else {}
        found = {field.name: Column("payload") for field in table.schema if kind_of_values(field.type) != "vector"}
        found |= {name: Column(f"vector({each.size})", None, each.size) for name, each in named.items()}
        check_columns(table, found, {})

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        errors = needed("qdrant_client.http.exceptions", "qdrant", "--into", "into")
        try:
            yield
        except (errors.ResponseHandlingException, OSError) as error:
            raise TryLater(f"{self._place}: {first_line(error)}", _RETRY_S) from error
        except errors.UnexpectedResponse as error:
            if (error.status_code or 0) >= 500 or error.status_code == 429:
                raise TryLater(f"{self._place}: {first_line(error)}", _RETRY_S) from error
            raise InvalidInput(
                "into", self._place, f"a Qdrant server that accepts the points ({first_line(error)})"
            ) from error
        except RuntimeError as error:  # the folder is in use
            raise TryLater(f"{self._place}: {first_line(error)}", _RETRY_S) from error


def _id(word: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, word))


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | list | dict | None) else str(value)
