"""Settings of the index of a job's vectors."""

from __future__ import annotations

from typing import Annotated, Any

from twoshift.declare import setting
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.types import JobKindName
from twoshift.values import choice, share, text
from twoshift.vectors.names import METRICS, library_of

__all__ = ["INDEX_SETTINGS", "IndexKey", "IndexMetric", "IndexName", "IndexRecall", "check_index", "index_location"]

_MORE = "An index whose name has no slash is created in the output folder. See [search](search.md)."
_TABULAR = (".ubj", ".json", ".txt", ".lgb", ".cbm", ".skops", ".pkl", ".joblib")
INDEX_SETTINGS = {"index_metric": "cos", "index_key": None, "index_recall": 0.95}  # and their defaults

IndexName = Annotated[
    str | None,
    setting(
        "Build a vector index with this name: vectors.usearch, vectors.faiss or vectors.lance. The suffix selects the "
        "library.",
        text("NAME"),
        more=_MORE,
    ),
]
IndexMetric = Annotated[
    str,
    setting(
        "With --index: how vectors are compared: cos (cosine), ip (inner product) or l2 (Euclidean distance).",
        choice(METRICS),
    ),
]
IndexKey = Annotated[
    str | None,
    setting(
        "With --index: column that identifies a row; a search returns the values of this column. --keep must also name "
        "this column.",
        text("COLUMN"),
        shown="the row number in the output",
    ),
]
IndexRecall = Annotated[
    float,
    setting(
        "With --index: minimum recall@10. An index with a lower recall does not replace the previous index.",
        share(zero=False),
    ),
]


def check_index(settings: Any) -> None:
    """Raises InvalidInput for settings that are wrong whatever the model."""
    if settings.index is None:
        for name, usual in INDEX_SETTINGS.items():
            if (value := getattr(settings, name)) != usual:
                raise Inapplicable(name, value, "without --index")
        return
    library_of(settings.index)
    if settings.index_key is not None and settings.index_key not in settings.keep:
        accepted = f"a column that --keep copies: add --keep {settings.index_key}"
        raise InvalidInput("index_key", settings.index_key, accepted)
    if settings.kind is not JobKindName.TABLE:
        raise Inapplicable("index", settings.index, "for a batch of requests")
    needs = "an index needs a model that returns vectors"
    if settings.prompt is not None:
        raise Inapplicable("index", settings.index, f"because {settings.model} is a language model: {needs}")
    if settings.pair is not None:
        raise Inapplicable("index", settings.index, f"with --pair, which returns scores: {needs}")
    if settings.model.endswith(_TABULAR):
        raise Inapplicable("index", settings.index, f"because {settings.model} is a tabular model: {needs}")


def index_location(output: str, index: str) -> str:
    """Location of the index: the output folder if its name has no slash.

    Dataset readers ignore names that begin with an underscore.
    """
    return index.rstrip("/") if "/" in index else f"{output.rstrip('/')}/_index/{index}"
