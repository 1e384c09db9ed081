"""A job's index: what is refused, and where it lies."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from twoshift.batch.index_pieces import vector_column
from twoshift.batch.index_settings import index_location
from twoshift.batch.settings import JobSettings, make_settings
from twoshift.errors import InvalidInput

GIVEN = {"inputs": ("docs",), "output": "out", "model": "minilm", "text": "body", "keep": ("id",)}


def settings(**more: Any) -> JobSettings:
    return make_settings(GIVEN | more)


@pytest.mark.parametrize(
    ("more", "field", "told"),
    [
        ({"index": "vectors.annoy"}, "index", r"\.usearch, \.faiss, \.lance"),
        ({"index": ".usearch"}, "index", "such as vectors.usearch"),
        ({"index": "v.usearch", "index_metric": "dot"}, "index_metric", "cos"),
        ({"index": "v.usearch", "index_key": "url"}, "index_key", "add --keep url"),
        ({"index": "v.usearch", "index_recall": 1.5}, "index_recall", "1"),
        ({"index_key": "id"}, "index_key", "without --index"),
        ({"index_metric": "l2"}, "index_metric", "without --index"),
        ({"index": "v.usearch", "text": None, "prompt": "body"}, "index", "language model"),
        ({"index": "v.usearch", "pair": "other"}, "index", "with --pair, which returns scores"),
        ({"index": "v.usearch", "text": None, "model": "fraud.ubj"}, "index", "tabular"),
    ],
)
def test_what_no_index_can_be_made_of_is_refused_before_a_model_is_loaded(
    more: dict[str, Any], field: str, told: str
) -> None:
    with pytest.raises(InvalidInput, match=told) as refused:
        settings(**more)
    assert refused.value.field == field


def test_an_index_without_a_slash_lies_where_readers_of_the_output_pass_over_it() -> None:
    assert index_location("out/", "v.usearch") == "out/_index/v.usearch"
    assert index_location("s3://b/out", "v.faiss") == "s3://b/out/_index/v.faiss"
    assert index_location("out", "indexes/docs.usearch/") == "indexes/docs.usearch"
    assert index_location("out", "s3://b/docs.lance") == "s3://b/docs.lance"


def test_the_column_of_vectors_is_found_and_a_classifier_refused() -> None:
    vector = pa.list_(pa.float32(), 4)
    assert vector_column(pa.schema([("id", pa.int64()), ("v", vector)]), "m", "v.usearch") == ("v", 4)
    both = pa.schema([("other", vector), ("embedding", vector)])
    assert vector_column(both, "m", "v.usearch") == ("embedding", 4)
    for schema in (pa.schema([("score", pa.float32())]), pa.schema([("a", vector), ("b", vector)])):
        with pytest.raises(InvalidInput, match="one vector output"):
            vector_column(schema, "m", "v.usearch")
