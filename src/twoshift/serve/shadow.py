"""Copies of live requests that a candidate answers in idle time, compared with the answers that callers got."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twoshift.endpoints.facts import characters_of
from twoshift.engine import RowResult
from twoshift.engine.long_texts import pieced
from twoshift.engine.waiting import BlockOwner
from twoshift.errors import InvalidInput, Late, TryLater, TwoshiftError, first_line
from twoshift.generation import GenerationRequest
from twoshift.policy.answer_differences import DifferenceCounts, DifferenceSummary, column_differences
from twoshift.policy.rollout_values import Compared
from twoshift.ports import LookupRuntime
from twoshift.serve.deployments import Deployment
from twoshift.serve.live_model import LiveModel
from twoshift.serve.live_request import LiveRequest
from twoshift.serve.llm.language_model import LanguageModel, is_language_model
from twoshift.serve.llm.model import ServedLlm, prompt_characters
from twoshift.serve.model import Answer, ServedModel
from twoshift.serve.rollout_table import RolloutTable
from twoshift.serve.versions import VersionSplit
from twoshift.types import Lane

__all__ = ["CompareAnswers", "Shadow", "compare_function", "shadow_of"]

_logger = logging.getLogger("twoshift.rollouts")
_MOST_REQUESTS, _MOST_ROWS, _MOST_CHARACTERS = 32, 1024, 4_000_000  # that wait for idle time: others are let go
_PATIENCE_S = 0.5  # for idle time, after which a copy is let go
_LOOK_S = 0.005
_REST = 3.0  # times what a copy took: at most a quarter of the time is used
_ANSWER_S, _TEXT_S = 30.0, 120.0
_SHOWN_BOUND = 0.05  # of differences that are shown and decide nothing

# A row, the stable version's answer and the candidate's -> a difference from 0 to 1
CompareAnswers = Callable[[Any, Mapping[str, Any], Mapping[str, Any]], float]
_Columns = Mapping[str, NDArray[Any]]


class _Copy(NamedTuple):
    rows: Sequence[Any]
    characters: int
    columns: Callable[[], _Columns]  # the stable version's answers
    stable_s: float | None  # what its call took, where nothing else was in it
    is_drawn: bool = False  # texts that may be others each time


class Shadow:
    """A thread of its own asks the candidate; the server's loop only offers."""

    def __init__(
        self,
        stable: Callable[[], LiveModel],
        candidate: LiveModel,
        loop: asyncio.AbstractEventLoop,
        bound: float | None,
        compare: CompareAnswers | None = None,
    ) -> None:
        """`bound`: the largest difference of answers that agree; None: all that are answered agree."""
        self._stable, self._candidate, self._loop = stable, candidate, loop
        self._bound, self._compare = bound, compare
        self._owner = BlockOwner()
        self._waiting: deque[_Copy] = deque()
        self._rows = self._characters = 0  # that wait; changed by the loop and the thread
        self._seen: deque[Compared] = deque(maxlen=10_000)
        self._differences = DifferenceCounts(_SHOWN_BOUND if bound is None else bound)
        self._lock = threading.Lock()  # guards the counts of what waits, and the differences
        self._came, self._closed = threading.Event(), threading.Event()
        self.why_failed = ""  # the candidate's last error
        self.let_go = 0  # copies for which there was no idle time or no room
        self._thread = threading.Thread(target=self._run, name="twoshift-shadow", daemon=True)
        self._thread.start()

    def offer(self, rows: Sequence[Any], answer: Answer) -> None:
        """A request and its answer; nobody waits, and it may be let go."""
        if self._is_full(len(rows)):
            return
        stages = answer.stages
        stable_s = stages.forward if stages.call_rows == len(rows) else None  # others may have been in its call
        self._add(_Copy(rows, sum(characters_of(rows)), lambda: columns_of(answer.rows), stable_s))

    def offer_texts(self, rows: Sequence[GenerationRequest], texts: Sequence[str]) -> None:
        """The same of a language model: prompts and the texts that came back."""
        if self._is_full(len(rows)):
            return
        is_drawn = any(each.params.temperature > 0 for each in rows)
        found = {"text": np.array([*texts], object)}
        self._add(_Copy(rows, sum(map(prompt_characters, rows)), lambda: found, None, is_drawn))

    def _is_full(self, rows: int) -> bool:
        full = len(self._waiting) >= _MOST_REQUESTS or self._rows + rows > _MOST_ROWS
        self.let_go += full
        return full

    def _add(self, copy: _Copy) -> None:
        if self._characters + copy.characters > _MOST_CHARACTERS:
            self.let_go += 1
            return
        with self._lock:
            self._rows += len(copy.rows)
            self._characters += copy.characters
        self._waiting.append(copy)
        self._came.set()

    def taken(self) -> list[Compared]:
        """What was compared since the last time. From any thread."""
        return [self._seen.popleft() for _ in range(len(self._seen))]

    def heard(self, compared: Sequence[Compared], differences: Mapping[str, Any] | None) -> None:
        """What another process of this server has compared. From any thread."""
        self._seen.extend(compared)
        if differences is not None:
            with self._lock:
                self._differences.merge(differences)

    def taken_differences(self) -> dict[str, Any] | None:
        """For the process that keeps them for all; None: there are no new ones."""
        with self._lock:
            found, self._differences = self._differences, DifferenceCounts(self._differences.bound)
        return found.state() if found.summary().rows else None

    def differences(self) -> DifferenceSummary:
        """Of all answers that were compared."""
        with self._lock:
            return self._differences.summary()

    def close(self) -> None:
        """No further copies; what runs ends by itself."""
        self._closed.set()
        self._came.set()

    # The thread

    def _run(self) -> None:
        while not self._closed.is_set():
            self._came.wait()
            self._came.clear()
            while self._waiting and not self._closed.is_set():
                copy = self._waiting.popleft()
                with self._lock:
                    self._rows -= len(copy.rows)
                    self._characters -= copy.characters
                if not self._is_idle():
                    self.let_go += 1
                    continue
                began_s = time.monotonic()
                self._compared(copy)
                self._closed.wait(_REST * (time.monotonic() - began_s))

    def _is_idle(self) -> bool:
        """Whether no live row waits, soon enough."""
        until_s = time.monotonic() + _PATIENCE_S
        while not self._closed.is_set():
            try:
                waiting = self._stable().waiting().get(Lane.ONLINE)
            except TwoshiftError:
                return False
            if waiting is None or not waiting.rows:
                return True
            if time.monotonic() >= until_s:
                return False
            time.sleep(_LOOK_S)
        return False

    def _compared(self, copy: _Copy) -> None:
        count = len(copy.rows)
        try:
            found, took_s = self._asked(copy.rows)
        except (TryLater, Late, TimeoutError):
            self.let_go += 1
            return
        except Exception as error:  # a model's own code may raise anything
            self.why_failed = f"{type(error).__name__}: {first_line(error)}"
            self._seen.append(Compared(count, count, failed=True))
            return
        disagreed = 0
        if not copy.is_drawn:
            try:
                differences = self._between(copy, found)
            except Exception:  # a user's own function may raise anything
                _logger.exception("answers could not be compared")
                return
            with self._lock:
                self._differences.add(differences)
            disagreed = 0 if self._bound is None else int((differences > self._bound).sum())
        both = took_s is not None and copy.stable_s is not None
        self._seen.append(Compared(count, disagreed, took_s if both else None, copy.stable_s if both else None))

    def _asked(self, rows: Sequence[Any]) -> tuple[_Columns, float | None]:
        """The candidate's columns, and what its call took where no other rows were in it."""
        model = self._candidate
        if is_language_model(model):
            return self._asked_texts(model, rows), None
        if isinstance(model, ServedModel) and not isinstance(model.engine.runtime, LookupRuntime):
            given = pieced(model.engine, model.info.texts.too_long)(rows)
            result = model.engine.submit_block(given.rows, owner=self._owner).result(_ANSWER_S)
            if result.errors:
                raise next(iter(result.errors.values()))
            columns = result.columns if given.pieces is None else given.pieces.merged(result.columns, model.info)
            return columns, result.device_s
        now_s = time.monotonic()
        asked = model.answer(LiveRequest(rows, now_s + _ANSWER_S, now_s))
        answer = asyncio.run_coroutine_threadsafe(asked, self._loop).result(_ANSWER_S)
        stages = answer.stages
        return columns_of(answer.rows), stages.forward if stages.call_rows == len(rows) else None

    def _asked_texts(self, model: LanguageModel, rows: Sequence[GenerationRequest]) -> _Columns:
        if isinstance(model, ServedLlm):
            result = model.engine.submit_block(model.engine.runtime.prepare(rows), owner=self._owner).result(_TEXT_S)
            if result.errors:
                raise next(iter(result.errors.values()))
            return {"text": result.columns["text"]}

        async def whole() -> list[dict[str, Any]]:
            running = await model.begin(rows, _TEXT_S, time.monotonic(), lambda: None)
            try:
                return await running.whole()
            finally:
                running.close()

        found = asyncio.run_coroutine_threadsafe(whole(), self._loop).result(_TEXT_S)
        return {"text": np.array([each["text"] for each in found], object)}

    def _between(self, copy: _Copy, found: _Columns) -> NDArray[np.float64]:
        stable = copy.columns()
        if self._compare is None:
            return column_differences(stable, found, _queries(copy.rows))
        values = [self._compare(row, _row_of(stable, at), _row_of(found, at)) for at, row in enumerate(copy.rows)]
        return np.clip(np.nan_to_num(np.asarray(values, np.float64), nan=1.0), 0.0, 1.0)


def columns_of(rows: Sequence[RowResult]) -> dict[str, NDArray[Any]]:
    """Answers as columns."""
    return {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0].columns}


def shadow_of(table: RolloutTable, split: VersionSplit[Deployment], loop: asyncio.AbstractEventLoop) -> Shadow:
    """Who compares the answers of a candidate; raises InvalidInput where the user's function cannot be used."""
    compare = None if table.compare is None else compare_function(table.compare)
    return Shadow(lambda: split.stable.backend, split.candidate.backend, loop, table.max_difference, compare)


def compare_function(word: str) -> CompareAnswers:
    """file.py:function; raises InvalidInput."""
    accepted = "file.py:function; the function gets a row and the answers of the stable version and of the candidate"
    source, _, name = word.rpartition(":")
    path = Path(source).expanduser()
    if not source.endswith(".py") or not name.isidentifier() or not path.is_file():
        raise InvalidInput("compare", word, accepted)
    module_name = f"twoshift_compare_{path.stem}"
    loader = SourceFileLoader(module_name, str(path))
    module = module_from_spec(ModuleSpec(module_name, loader, origin=str(path)))
    try:
        loader.exec_module(module)
    except Exception as error:  # a user's own code may raise anything
        raise InvalidInput("compare", word, f"{accepted}; the file raised {error}") from error
    found: Any = getattr(module, name, None)
    if not callable(found):
        raise InvalidInput("compare", word, accepted)
    function: Any = found
    return function


def _row_of(columns: _Columns, at: int) -> dict[str, Any]:
    return {name: each[at] for name, each in columns.items()}


def _queries(rows: Sequence[Any]) -> list[Any] | None:
    """Of a reranker's pairs: whose documents are ordered together."""
    pairs = all(isinstance(row, tuple) and len(row) == 2 and isinstance(row[0], str) for row in rows)
    return [row[0] for row in rows] if pairs else None
