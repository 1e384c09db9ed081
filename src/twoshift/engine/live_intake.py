"""Live rows on their way into the queue: admitted together where one look at the plan is enough, or one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import assert_never

from twoshift.engine.waiting import LiveRow, LiveRows, Waiting
from twoshift.errors import InvalidInput, Late, TooLarge, TryLater, TwoshiftError
from twoshift.policy.admission import AdmissionPolicy, Admit, Never, Refuse, Try
from twoshift.ports import Prepared
from twoshift.types import CallSize, Item

__all__ = ["LiveIntake"]


class LiveIntake:
    """Of one engine, under its lock."""

    def __init__(self, admission: AdmissionPolicy, waiting: Waiting) -> None:
        self._admission, self._waiting = admission, waiting

    def take(
        self, rows: Prepared, lengths: Sequence[int], asked: Sequence[LiveRows], now_s: float
    ) -> list[list[int] | Exception]:
        """Of requests whose rows were prepared together: the keys of each, or why it is not taken."""
        signature = self._waiting.signatures.number(rows.signature)
        sure = len(asked) > 1 and self._admits_together(lengths, asked, signature, now_s)
        found, refused = list[list[int] | Exception](), None
        for each in asked:
            if refused is not None and _asks_more(each, refused[0], lengths):
                found.append(refused[1])
                continue
            try:
                found.append(self._queue(rows, lengths, each, signature, now_s, sure))
            except TwoshiftError as error:
                found.append(error)
                refused = (each, error) if type(error) is TryLater and len(each.sinks) == 1 else refused
        return found

    def admit(self, items: list[Item], now_s: float, since_s: float | None) -> float | None:
        """The deadline that its rows are queued with, where that is not their own; raises TryLater, TooLarge."""
        answer = self._admission.decide(items, now_s, since_s)
        match answer:
            case Admit():
                return None
            case Try(until_s):
                return until_s
            case Refuse(retry_after_s, reason):
                raise TryLater(reason, retry_after_s)
            case Never():
                raise _too_large(answer)
            case _:
                assert_never(answer)

    def _admits_together(self, lengths: Sequence[int], asked: Sequence[LiveRows], signature: int, now_s: float) -> bool:
        """Whether all requests are admitted, by one look at the plan: one for each would cost more than their calls."""
        first_s = min([each.deadline_s for each in asked])
        if not first_s > now_s:
            return False
        if self._admission.admits_all(CallSize.of(lengths), first_s, now_s):
            return True
        items = [
            Item(-1, each.deadline_s, tokens, signature)
            for each in asked
            for tokens in lengths[each.start : each.start + len(each.sinks)]
        ]
        return self._admission.admits_each(items, now_s)

    def _queue(
        self, rows: Prepared, lengths: Sequence[int], asked: LiveRows, signature: int, now_s: float, sure: bool
    ) -> list[int]:
        """`sure`: it is known to be admitted."""
        start, sinks, deadline_s, tenant, since_s = asked
        if math.isnan(deadline_s):
            raise InvalidInput("deadline_s", deadline_s, "a time on the clock of engine.now_s(), or inf")
        if deadline_s <= now_s and sinks:
            why = f"the deadline {deadline_s:.3f} has passed on the clock of engine.now_s(): {now_s:.3f}"
            raise Late(why, begun=False, for_clients="the deadline passed before the request could start")
        waiting, stop = self._waiting, start + len(sinks)
        items = [Item(waiting.new_key(), deadline_s, tokens, signature) for tokens in lengths[start:stop]]
        if not sure and (until_s := self.admit(items, now_s, since_s)) is not None:
            items = [item._replace(deadline_s=until_s) for item in items]
        for at, (item, sink) in enumerate(zip(items, sinks, strict=True), start):
            waiting.add_row(item, LiveRow(rows, at, sink, now_s, deadline_s, item.tokens, tenant))
        return [item.key for item in items]


def _asks_more(asked: LiveRows, refused: LiveRows, lengths: Sequence[int]) -> bool:
    """Whether a single row has no more time than one that was refused just now, and is no shorter."""
    if len(asked.sinks) != 1 or asked.deadline_s > refused.deadline_s:
        return False
    return lengths[asked.start] >= lengths[refused.start]


def _too_large(never: Never) -> TooLarge:
    return TooLarge("request", never.reason, "a smaller request, or a larger x-request-timeout-ms")
