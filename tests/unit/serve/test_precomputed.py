"""Which precomputed rows are served, and what becomes of the others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from twoshift.answers.generations import Generation
from twoshift.answers.keys import KeyKind
from twoshift.answers.layout import ColumnLayout
from twoshift.answers.records import pack_record, unpack_record
from twoshift.engine import RowResult
from twoshift.errors import Broken, InvalidInput, NotFound, TryLater
from twoshift.ports import RuntimeInfo
from twoshift.serve.keyed import Asked, Found, RequestKeys, Rules
from twoshift.serve.metrics import ModelMetrics
from twoshift.serve.model import Answer
from twoshift.serve.precomputed import Precomputed, Stored, other_version
from twoshift.serve.stages import Stages
from twoshift.types import TextPolicy

NOW_S = 1_000_000.0
INFO = RuntimeInfo("m", "sha256:1", "python", "cpu", "fp32", 128, ("score",))


def generation(**changes: Any) -> Generation:
    usual: dict[str, Any] = {
        "name": "g", "key": "id", "kind": KeyKind.TEXT, "columns": (ColumnLayout("score", "<f8"),), "model": "m",
        "checksum": "sha256:1", "precision": "fp32", "too_long": "cut", "prompt_name": None, "text": None,
        "output": "out",
    }  # fmt: skip
    return Generation(**{**usual, **changes})


class Store:
    """An AnswerStore in memory."""

    def __init__(self, rows: dict[str, tuple[float, float]], made: Generation | None = None) -> None:
        self.made: Generation | None = made or generation()
        self.rows: dict[bytes, Stored | Broken | None] = {
            key.encode(): self.stored(key.encode(), value, age_s) for key, (value, age_s) in rows.items()
        }

    def stored(self, key: bytes, value: float, age_s: float) -> Stored:
        packed = pack_record(key, NOW_S - age_s, np.float64(value).tobytes())
        assert self.made is not None
        return Stored(unpack_record(packed), self.made)

    why_none = "the answers are being opened"

    def generation(self) -> Generation | None:
        return self.made

    async def find(self, keys: Sequence[bytes | None], info: RuntimeInfo) -> Sequence[Stored | Broken | None]:
        return [None if key is None else self.rows.get(key) for key in keys]


class Live:
    """A LiveSide whose answer to a row is the row."""

    def __init__(self) -> None:
        self.asked = list[Any]()
        self.fails: Exception | None = None

    async def answer(
        self,
        model: Any,
        rows: Sequence[Any],
        timeout_s: float | None,
        arrived_s: float,
        caller: Any = None,
        visit: Any = None,
    ) -> Answer:
        if self.fails is not None:
            raise self.fails
        self.asked += rows
        values = {"score": np.array([float(each) for each in rows])}
        return Answer([RowResult(values, at, 0.0, 1) for at in range(len(rows))], 5, 0, Stages())

    @contextlib.contextmanager
    def inside(self, model: Any, caller: Any) -> Iterator[Any]:
        yield SimpleNamespace(version="3")


def model(info: RuntimeInfo = INFO) -> Any:
    return SimpleNamespace(name="m", info=info, metrics=ModelMetrics())


def ask(store: Store, keys: list[Any], rows: list[Any], live: Live | None = None, **rules: Any) -> tuple[Answer, Any]:
    deployed = model()
    made = Precomputed(Rules("id", **rules), store, lambda: NOW_S)
    asked = Asked(rows, RequestKeys(keys, "keys[{}]"), None, 0.0)
    return asyncio.run(made.answer(live or Live(), deployed, asked)), deployed.metrics.looked_up


def scores(answer: Answer) -> list[float]:
    return [float(row["score"]) for row in answer.rows]


def test_hits_need_no_device_and_tell_the_age_of_the_oldest() -> None:
    live = Live()
    answer, counted = ask(Store({"a": (1.0, 10), "b": (2.0, 30)}), ["b", "a"], [7, 8], live)
    assert (scores(answer), live.asked, answer.tokens) == ([2.0, 1.0], [], 0)
    assert (answer.source, answer.age_s, answer.version) == ("precomputed", 30, "3")
    assert counted == {"hit": 2}


def test_what_is_missing_or_too_old_is_computed_in_its_place() -> None:
    live, store = Live(), Store({"a": (1.0, 10), "old": (2.0, 100)})
    answer, counted = ask(store, ["x", "a", "old", None], [7, 8, 9, 10], live, max_age_s=60.0)
    assert (scores(answer), live.asked) == ([7.0, 1.0, 9.0, 10.0], [7, 9, 10])
    assert (answer.source, answer.age_s) == ("mixed", 10)
    assert counted == {"miss": 1, "hit": 1, "stale": 1, "unkeyed": 1}


def test_a_damaged_row_is_computed_live() -> None:
    store = Store({})
    store.rows[b"a"] = Broken("its checksum differs")
    answer, counted = ask(store, ["a"], [4])
    assert (scores(answer), answer.source, counted) == ([4.0], "live", {"damaged": 1})


@pytest.mark.parametrize(
    "changes",
    [{"checksum": "sha256:2"}, {"precision": "int8"}, {"too_long": "split"}],
    ids=lambda each: next(iter(each)),
)
def test_rows_of_another_version_are_not_served(changes: dict[str, str]) -> None:
    answer, counted = ask(Store({"a": (1.0, 10)}, generation(**changes)), ["a"], [4])
    assert (scores(answer), counted) == ([4.0], {"wrong_version": 1})
    assert next(iter(changes.values())) in other_version(generation(**changes), INFO)


def test_a_row_that_seems_to_be_made_in_the_future_has_the_age_0() -> None:
    answer, _ = ask(Store({"a": (1.0, -500)}), ["a"], [4], max_age_s=60.0)
    assert (answer.source, answer.age_s) == ("precomputed", 0.0)


@pytest.mark.parametrize(
    ("key", "why"), [("x", "has no precomputed answer"), ("old", "100 s old"), (None, "computes no answers live")]
)
def test_nothing_is_computed_where_misses_are_errors(key: str | None, why: str) -> None:
    live, wanted = Live(), InvalidInput if key is None else NotFound
    with pytest.raises(wanted, match=why) as raised:
        ask(Store({"a": (1.0, 1), "old": (1.0, 100)}), ["a", key], [1, 2], live, max_age_s=60.0, computes_missing=False)
    assert (raised.value.field, live.asked) == ("keys[1]", [])


def test_who_asks_before_the_answers_are_open_is_told_to_come_back_where_misses_are_errors() -> None:
    store = Store({})
    store.made = None
    with pytest.raises(TryLater, match="being opened"):
        ask(store, ["a"], [1], computes_missing=False)
    assert scores(ask(store, ["a"], [1])[0]) == [1.0]


def test_a_lookup_does_not_call_a_key_missing_while_no_answers_are_open() -> None:
    store = Store({})
    store.made = None
    with pytest.raises(TryLater, match="being opened"):
        asyncio.run(Precomputed(Rules("id"), store).look_up(RequestKeys(["a"], "keys[{}]"), None, model()))


def test_errors_of_rows_that_were_computed_name_their_place_in_the_request() -> None:
    live = Live()
    live.fails = InvalidInput("row 1, field 'x'", None, "a number")
    with pytest.raises(InvalidInput) as raised:
        ask(Store({"a": (1.0, 1)}), ["a", "m", "n"], [1, 2, 3], live)
    assert raised.value.field == "row 2, field 'x'"


@pytest.mark.parametrize(
    ("row", "made_with", "found"),
    [
        ("text", None, Found.HIT),
        ({"text": "t", "prompt_name": "query"}, None, Found.UNKEYED),
        ({"text": "t", "prompt_name": "query"}, "query", Found.HIT),
        ("text", "query", Found.UNKEYED),
        ({"text": "t", "prompt": ""}, None, Found.UNKEYED),
    ],
)
def test_texts_with_another_prompt_than_the_jobs_are_no_hits(row: Any, made_with: str | None, found: Found) -> None:
    made = Precomputed(Rules("id"), Store({"a": (1.0, 1)}, generation(prompt_name=made_with)), lambda: NOW_S)
    looked = asyncio.run(made.look_up(RequestKeys(["a"], "keys[{}]"), [row], model()))
    assert looked[0].found is found


def test_a_server_that_treats_long_texts_in_another_way_serves_nothing_of_it() -> None:
    info = RuntimeInfo(**{name: getattr(INFO, name) for name in ("model", "checksum", "runtime", "device", "precision",
                                                                 "max_row_tokens", "outputs")},
                       texts=TextPolicy("error"))  # fmt: skip
    assert "long texts" in other_version(generation(), info)
