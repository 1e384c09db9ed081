"""Settings of the table of a job's answers by key."""

from __future__ import annotations

from typing import Annotated, Any

from twoshift.answers.redis_place import is_redis, redis_package, redis_place
from twoshift.declare import setting
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.types import JobKindName
from twoshift.values import text

__all__ = ["AnswerKey", "AnswerPlace", "check_answers", "check_servable"]

AnswerKey = Annotated[
    str | None,
    setting(
        "Build a table of answers for `twoshift serve --precomputed`, with this column as the key. --keep must also "
        "name this column.",
        text("COLUMN"),
        more="See [precomputed answers](hybrid.md).",
    ),
]
AnswerPlace = Annotated[
    str | None,
    setting(
        "With --answer-key: where to write the table of answers: a folder, or redis://host:6379/0#NAME. The table of "
        "an earlier job at this location is replaced.",
        text("PLACE"),
        shown="in the output folder",
    ),
]


def check_answers(settings: Any) -> None:
    """Raises InvalidInput for settings that are wrong whatever the model."""
    key, place = settings.answer_key, settings.answer_table
    if key is None:
        if place is not None:
            raise Inapplicable("answer_table", place, "without --answer-key")
        return
    if key not in settings.keep:
        raise InvalidInput("answer_key", key, f"a column that --keep copies: add --keep {key}")
    if place is not None and is_redis(place):
        redis_place(place, "answer_table")
        redis_package(place, "answer_table")
    check_servable(settings, "answer_key", key)


def check_servable(settings: Any, field: str, value: str) -> None:
    """Raises InvalidInput if the answers of this job cannot be served by key."""
    if settings.kind is not JobKindName.TABLE:
        raise Inapplicable(field, value, "for a batch of requests: answers of a batch have no key column")
    if settings.prompt is not None:
        raise Inapplicable(field, value, f"because {settings.model} is a language model")
    if settings.pair is not None:
        raise Inapplicable(field, value, "with --pair: a table of answers cannot hold scores of pairs of texts")
