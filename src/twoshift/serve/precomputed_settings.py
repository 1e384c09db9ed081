"""Settings of precomputed answers of a model."""

from __future__ import annotations

from typing import Annotated, Any

from twoshift.answers.redis_place import is_redis, redis_package, redis_place
from twoshift.declare import setting
from twoshift.errors import Inapplicable, InvalidInput
from twoshift.units import parse_duration
from twoshift.values import FLAG, choice, size, span, text

__all__ = [
    "WRITE_BACK_BYTES",
    "KeyColumn",
    "MaxAge",
    "OnMiss",
    "PrecomputedPlace",
    "WriteBackFlag",
    "WriteBackSize",
    "check_precomputed",
    "max_age_s",
]

WRITE_BACK_BYTES = 256e6
# What needs --precomputed, and the defaults
_SETTINGS = {
    "key": None, "max_age": None, "on_miss": "live", "write_back": False, "write_back_size": WRITE_BACK_BYTES
}  # fmt: skip

PrecomputedPlace = Annotated[
    str | None,
    setting(
        "Serve precomputed answers by key. Give the output folder of `twoshift run --answer-key`, or the location "
        "that was given to `twoshift run --answer-table` (a folder or redis://host:6379/0#NAME).",
        text("PLACE"),
        more="When a new run is complete, the server switches to the output of the new run. See [precomputed "
        "answers](hybrid.md).",
    ),
]
KeyColumn = Annotated[
    str | None,
    setting("With --precomputed: name of the column or field that has the key of a row.", text("COLUMN"), "--key"),
]
MaxAge = Annotated[
    str | None,
    setting("With --precomputed: maximum age of a precomputed answer, such as 24h.", span(), shown="any age"),
]
OnMiss = Annotated[
    str,
    setting(
        "With --precomputed: what to do if an answer is missing, too old or from another model version: live (compute "
        "the answer live) or error.",
        choice(("live", "error")),
    ),
]
WriteBackFlag = Annotated[
    bool,
    setting(
        "With --precomputed: store answers that were computed live, and return them for the same key and input.",
        FLAG,
        "--write-back",
    ),
]
WriteBackSize = Annotated[
    float,
    setting(
        "With --write-back: maximum disk space for stored answers, per model version. At this limit, the oldest "
        "answers are deleted.",
        size(),
        shown="256MB",
    ),
]


def check_precomputed(settings: Any) -> None:
    """Raises InvalidInput for settings that need other settings."""
    if settings.precomputed is None:
        for name, usual in _SETTINGS.items():
            if (value := getattr(settings, name)) != usual:
                raise Inapplicable(name, value, "without --precomputed")
        return
    if settings.key is None:
        raise InvalidInput("key", None, "--key with the name of the column that has the keys of the answers")
    if is_redis(settings.precomputed):
        redis_place(settings.precomputed, "precomputed")
        redis_package(settings.precomputed)
        if settings.write_back_size != WRITE_BACK_BYTES:
            why = "with Redis, which limits its own memory (maxmemory)"
            raise Inapplicable("write_back_size", settings.write_back_size, why)
    if settings.write_back and settings.on_miss != "live":
        raise Inapplicable("write_back", True, "with --on-miss error, which computes no answer live")
    if not settings.write_back and settings.write_back_size != WRITE_BACK_BYTES:
        raise Inapplicable("write_back_size", settings.write_back_size, "without --write-back")


def max_age_s(settings: Any) -> float | None:
    """None: any age."""
    return None if settings.max_age is None else parse_duration(settings.max_age, "max_age")
