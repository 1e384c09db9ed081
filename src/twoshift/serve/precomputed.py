"""Answers of a deployment that are there already: looked up by key, and computed live where they are missing."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from twoshift.answers.generations import Generation
from twoshift.answers.keys import KeyKind, key_bytes
from twoshift.answers.layout import values_of
from twoshift.answers.records import Record
from twoshift.engine import RowResult
from twoshift.errors import Broken, InvalidInput, NotFound, TryLater
from twoshift.ports import RuntimeInfo
from twoshift.serve.deployments import Deployment
from twoshift.serve.keyed import Asked, Found, LiveSide, LookedUp, RequestKeys, Rules
from twoshift.serve.model import Answer
from twoshift.serve.stages import Stages
from twoshift.serve.write_back import WriteBack, kept_version

__all__ = ["AnswerStore", "Looked", "Precomputed", "Stored", "Unavailable", "other_version"]

_LOOK_S = 2.0  # until the store is looked at again
_ROW = re.compile(r"(?P<before>row |input\[)(?P<place>\d+)")


class AnswerStore(Protocol):
    """Where the answers lie. Of the server's loop."""

    def generation(self) -> Generation | None:
        """What is there now; None where there is nothing."""
        ...

    @property
    def why_none(self) -> str:
        """Why there is nothing."""
        ...

    async def find(self, keys: Sequence[bytes | None], info: RuntimeInfo) -> Sequence[Looked]:
        """The newest row of each key that this model has made, or of any other; Broken where it cannot be read."""
        ...


class Stored(NamedTuple):
    """A row and how its bytes are read."""

    record: Record
    made_by: Generation


class Unavailable(NamedTuple):
    """The store does not answer."""

    why: str


Looked = Stored | Broken | Unavailable | None


class Precomputed:
    """Of one deployment, in one process."""

    def __init__(
        self,
        rules: Rules,
        store: AnswerStore,
        now_unix_s: Callable[[], float] = time.time,
        write_back: WriteBack | None = None,
    ) -> None:
        """`write_back` keeps what is computed live; None: nothing is kept."""
        self.rules, self._store, self._now_unix_s, self._write_back = rules, store, now_unix_s, write_back

    @property
    def text_is_key(self) -> bool:
        """Whether a text that is asked for is its own key."""
        generation = self._store.generation()
        return generation is not None and generation.text == self.rules.key

    def close(self) -> None:
        """No more; what was to be kept is."""
        if self._write_back is not None:
            self._write_back.close()

    async def look_up(self, keys: RequestKeys, rows: Sequence[Any] | None, model: Deployment) -> list[LookedUp]:
        """Each row, counted; raises InvalidInput for a key that is none.

        Raises TryLater for a look-up without rows while no answers are open: no key is known to be missing.
        """
        info, generation = model.info, self._store.generation()
        if rows is None and generation is None:
            raise TryLater(self._store.why_none, _LOOK_S)
        asked = [self._key(keys, place, generation) for place in range(len(keys.values))]
        for place, row in enumerate(rows or ()):
            if generation is not None and not _has_prompt(row, generation, info):
                asked[place] = None
        found = await self._store.find(asked, info)
        now_unix_s = self._now_unix_s()
        looked = [self._judged(*each, info, now_unix_s) for each in zip(asked, found, strict=True)]
        if self._write_back is not None and rows is not None:
            looked = await self._write_back.filled(looked, asked, rows, info, now_unix_s)
        for each in looked:
            model.metrics.looked(each.found)
        if rows is None:
            _require_available(looked)
        return looked

    async def answer(self, live: LiveSide, model: Deployment, asked: Asked) -> Answer:
        """From what is there, and live for the rest; raises as the service does, NotFound where that is not wanted."""
        began_s = time.monotonic()
        info, asked_unix_s = model.info, self._now_unix_s()
        keys = asked.keys or RequestKeys([None] * len(asked.rows), "keys")
        looked = await self.look_up(keys, asked.rows, model)
        took_s = time.monotonic() - began_s
        left = [place for place, each in enumerate(looked) if each.row is None]
        if not left:
            return self._all_there(live, model, asked, looked, took_s)
        self._refuse(keys, looked, left)
        with_left = asked.rows if len(left) == len(looked) else [asked.rows[place] for place in left]
        try:
            found = await live.answer(model, with_left, asked.timeout_s, asked.arrived_s, asked.caller, asked.visit)
        except InvalidInput as error:
            raise error.renamed(_ROW.sub(lambda at: f"{at['before']}{left[int(at['place'])]}", error.field)) from error
        if self._write_back is not None and kept_version(model.info) == kept_version(info):  # else: who has answered?
            missed, counted = [looked[place] for place in left], model.metrics.written_back
            self._write_back.keep(missed, found.rows, info, asked_unix_s, counted)
        rows = [each.row for each in looked]
        for place, row in zip(left, found.rows, strict=True):
            rows[place] = row
        found.stages.lookup += took_s
        ages = [each.age_s for each in looked if each.row is not None]
        merged = [row for row in rows if row is not None]
        source = "mixed" if ages else "live"
        return msgspec.structs.replace(found, rows=merged, source=source, age_s=max(ages, default=0.0))

    def _all_there(
        self, live_side: LiveSide, model: Deployment, asked: Asked, looked: list[LookedUp], took_s: float
    ) -> Answer:
        with live_side.inside(model, asked.caller) as serving:
            now_s = time.monotonic()
            stages = Stages(admit=max(0.0, now_s - took_s - asked.arrived_s), lookup=took_s, finish=-now_s)
            if asked.visit is not None:
                asked.visit.submitted()
                asked.visit.answered(now_s)
            rows = [each.row for each in looked if each.row is not None]
            age_s = max(each.age_s for each in looked)
            return Answer(rows, 0, 0, stages, serving.version, "precomputed", age_s)

    def _refuse(self, keys: RequestKeys, looked: list[LookedUp], left: list[int]) -> None:
        """Raises where nothing is computed live."""
        if self.rules.computes_missing:
            return
        if self._store.generation() is None:
            raise TryLater(self._store.why_none, _LOOK_S)
        _require_available(looked)
        place, field = left[0], keys.field.format(left[0])
        if looked[place].found is Found.UNKEYED:
            why = "this server computes no answers live, and finds stored answers by this key"
            raise InvalidInput(field, None, f"a value of the key column {self.rules.key}: {why}")
        accepted = f"a key with a precomputed answer; {looked[place].why}, and this server computes no answers live"
        raise NotFound(field, keys.values[place], accepted)

    def _key(self, keys: RequestKeys, place: int, generation: Generation | None) -> bytes | None:
        value = keys.values[place]
        if value is None:
            return None
        kind = KeyKind.INTEGER if generation is None and isinstance(value, int) else KeyKind.TEXT
        return key_bytes(kind if generation is None else generation.kind, value, keys.field.format(place))

    def _judged(self, key: bytes | None, stored: Looked, info: RuntimeInfo, now_unix_s: float) -> LookedUp:
        if key is None:
            return LookedUp(Found.UNKEYED, why="this row of the request has no key")
        if stored is None:
            return LookedUp(Found.MISS, why="this key has no precomputed answer")
        if isinstance(stored, Unavailable):
            return LookedUp(Found.UNAVAILABLE, why=stored.why)
        if isinstance(stored, Broken):
            return LookedUp(Found.DAMAGED, why=str(stored))
        if why := other_version(stored.made_by, info):
            return LookedUp(Found.WRONG_VERSION, why=why)
        age_s = max(0.0, now_unix_s - stored.record.made_unix_s)  # clocks differ: nothing is made in the future
        if self.rules.max_age_s is not None and age_s > self.rules.max_age_s:
            return LookedUp(Found.STALE, age_s=age_s, why=f"the precomputed answer is {age_s:,.0f} s old")
        try:
            columns = values_of(stored.made_by.columns, stored.record.data, stored.record.at)
        except Broken as error:
            return LookedUp(Found.DAMAGED, why=str(error))
        return LookedUp(Found.HIT, RowResult(columns, 0, 0.0, 0), age_s)


def _require_available(looked: Sequence[LookedUp]) -> None:
    """Raises TryLater: no key is known to be missing while the store does not answer."""
    why = next((each.why for each in looked if each.found is Found.UNAVAILABLE), None)
    if why is not None:
        raise TryLater(why, _LOOK_S)


def other_version(made: Generation, info: RuntimeInfo) -> str:
    """What differs between the model that has made them and this one; empty where its answers are the same."""
    for what, was, now in (
        ("checksum", made.checksum, info.checksum),
        ("precision", made.precision, info.precision),
        ("treatment of long texts", made.too_long, info.texts.too_long),
    ):
        if was != now:
            return f"the precomputed answer is from another version of the model: {what} {was} instead of {now}"
    return ""


def _has_prompt(row: Any, made: Generation, info: RuntimeInfo) -> bool:
    """Whether a row has the prompt that the precomputed ones have."""
    named = made.prompt_name or info.default_prompt_name
    if isinstance(row, dict) and "text" in row and ("prompt" in row or "prompt_name" in row):
        return "prompt" not in row and row["prompt_name"] == named
    return named == info.default_prompt_name
