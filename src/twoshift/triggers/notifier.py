"""Webhooks: what has ended is told, signed, at least once, and to nobody who should not be called."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import logging
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from twoshift.closable_thread import ClosableThread
from twoshift.errors import Elsewhere, InvalidInput, TryLater, TwoshiftError
from twoshift.policy.addresses import target_of
from twoshift.policy.retries import DELIVERIES, RetryPolicy
from twoshift.retrying import retried
from twoshift.trigger_ports import Delivery, Notice, NoticeStore
from twoshift.triggers.capped_threads import CappedThreads
from twoshift.triggers.sending import Sender, Undelivered
from twoshift.triggers.signing import signed_headers
from twoshift.triggers.webhook_settings import WebhookSettings
from twoshift.types import DeliveryState
from twoshift.units import counted, format_duration

__all__ = ["Notifier"]

_logger = logging.getLogger("twoshift.triggers")
_TURN_S = 1.0
_HANDS, _OF_TARGET, _OF_OWNER = 16, 2, 8  # threads; of one host and of one tenant
_GONE = 410  # the receiver wants no more of it
_TELLING = RetryPolicy(0.5, 1.0, 5.0)  # the store of an attempt
_CLOSE_S = 2.0
_DECODINGS = 4  # of a path, after which it hides something


class Notifier:
    """Any thread may call it. Notices and deliveries lie in the store: a restart goes on with them."""

    def __init__(
        self,
        store: NoticeStore,
        webhooks: Mapping[str, WebhookSettings],
        sender: Sender,
        check_ours: Callable[[], None],  # raises Elsewhere
        log: Callable[[str, str], None] = lambda _subject, _text: None,  # a line about what the notice is about
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._webhooks, self._sender, self._check_ours = store, webhooks, sender, check_ours
        self._log, self._clock = log, clock
        self._keys = {name: each.signing_key() for name, each in webhooks.items()}
        self._hands = CappedThreads(_HANDS, "twoshift-webhook")
        self._woken = threading.Event()
        self._thread = ClosableThread(self._keep, "twoshift-notifier", _CLOSE_S, self._woken)

    def start(self) -> None:
        """Deliver from now on."""
        self._thread.start()

    def close(self) -> None:
        """Begin no more attempts; the next server goes on."""
        self._thread.close()

    def notify(self, owner: str, kind: str, subject: str, data: dict[str, Any], named: Sequence[str] = ()) -> None:
        """Something of that tenant has ended: `batch.completed`, its id, and what is told; raises TryLater.

        Once this returns it is remembered. The word after the dot is the event that webhooks ask for.
        """
        self._store.post(Notice(owner, kind, subject, data, self._clock(), tuple(named)))
        self._woken.set()

    def check(self, named: Sequence[str], owner: str) -> None:
        """Whether a tenant's job may name these webhooks; raises InvalidInput."""
        for each in named:
            found = self._named(each, owner)
            if found is not None:
                target_of(found[1], private_too=True, field="notify")
            else:
                mine = [name for name, hook in self._webhooks.items() if hook.tenant in (None, owner)]
                accepted = (
                    f"one of {', '.join(mine)}, or a URL that starts with the URL of a webhook with `below = true`"
                    if mine
                    else "no webhook: the server's configuration has no [webhooks.NAME] table that this tenant may use"
                )
                raise InvalidInput("notify", each, accepted)

    def list(self, limit: int = 100, owner: str | None = None) -> list[Delivery]:
        """The newest first."""
        self._check_ours()
        return self._store.list(limit, owner)

    def _named(self, name: str, owner: str) -> tuple[str, str] | None:
        """The webhook that is meant, and its URL; None where it is none of this tenant's."""
        for known, each in self._webhooks.items():
            if each.tenant not in (None, owner):
                continue
            if name == known:
                return known, each.url
            if each.below and name.startswith(each.url) and not _climbs(name):
                return known, name
        return None

    def _keep(self, closed: threading.Event) -> None:
        while not closed.is_set():
            self._woken.wait(_TURN_S)
            self._woken.clear()
            try:
                self.turn()
            except TryLater:  # another server delivers, or the database does not answer
                continue
            except Exception:
                _logger.exception("webhooks could not be called; the server tries again")

    def turn(self) -> None:
        """Make deliveries of notices, and begin those that are due; raises TryLater."""
        self._check_ours()
        while self._store.spread(lambda notice: list(self._deliveries(notice))):
            pass
        for each in self._store.due(self._clock(), _OF_TARGET):
            if self._thread.closed.is_set():
                return
            shares = {each.id: 1, f"to {each.target}": _OF_TARGET, f"of {each.owner}": _OF_OWNER}
            self._hands.try_to(shares, functools.partial(self._try, each))

    def _deliveries(self, notice: Notice) -> Iterator[Delivery]:
        event, at = notice.kind.rpartition(".")[2], datetime.datetime.fromtimestamp(notice.at_unix_s, datetime.UTC)
        body = msgspec.json.encode({"type": notice.kind, "timestamp": at.isoformat(), "data": notice.data}).decode()
        wanted = [(name, each.url) for name, each in self._webhooks.items() if not each.only_named]
        wanted += [found for name in notice.named if (found := self._named(name, notice.owner)) is not None]
        for name, url in dict.fromkeys(wanted):
            hook = self._webhooks[name]
            if event in hook.events and hook.tenant in (None, notice.owner):
                target, made = target_of(url, private_too=True), f"msg_{uuid.uuid4().hex}"
                yield Delivery(
                    made, notice.owner, notice.kind, notice.subject, name, url, f"{target.host}:{target.port}"[:300],
                    body, notice.at_unix_s, self._clock(),
                )  # fmt: skip

    def _try(self, delivery: Delivery) -> None:
        told, is_done, is_final = self._attempt(delivery)
        tries, now_s = delivery.attempts + 1, self._clock()
        age_s = max(0.0, now_s - delivery.created_unix_s)
        pause_s = DELIVERIES.pause_s(tries, age_s, random.random())  # noqa: S311
        state = DeliveryState.DELIVERED if is_done else DeliveryState.FAILED
        after = f"; no further attempt after {counted(tries, 'attempt')}" if not is_done else ""
        if not is_done and not is_final and pause_s is not None:
            state, after = DeliveryState.WAITING, f"; next attempt in {format_duration(pause_s)}"
        due_s = now_s + (pause_s or 0.0)
        self._tell(dataclasses.replace(delivery, attempts=tries, due_unix_s=due_s, state=state, told=told))
        with contextlib.suppress(TwoshiftError):
            self._log(delivery.subject, f"webhook {delivery.webhook}, event {delivery.kind}: {told}{after}")

    def _attempt(self, delivery: Delivery) -> tuple[str, bool, bool]:
        """What is told of it; whether it was delivered; whether there is no use in another."""
        key = self._keys.get(delivery.webhook)
        if key is None:
            return "this webhook no longer exists on the server", False, True
        body = delivery.body.encode()
        headers = signed_headers(key, delivery.id, int(self._clock()), body)
        try:
            status = self._sender.post(delivery.url, headers, body)
        except (Undelivered, InvalidInput) as error:
            return str(error), False, isinstance(error, InvalidInput)
        return f"status {status}", 200 <= status < 300, status == _GONE

    def _tell(self, delivery: Delivery) -> None:
        """Where nobody can be told, it is sent again: at least once."""

        def may_retry(error: Exception, _age_s: float) -> bool:
            return isinstance(error, TwoshiftError) and not isinstance(error, Elsewhere)

        with contextlib.suppress(TwoshiftError):
            retried(lambda: self._store.tried(delivery), _TELLING, may_retry, self._thread.closed.wait)


def _climbs(url: str) -> bool:
    """Whether its path may lead out of its folder again, for a receiver that decodes it, however often."""
    path = urlsplit(url).path
    slashes = path.count("/")
    for _ in range(_DECODINGS):
        path = unquote(path)
    hides = path.count("/") > slashes or unquote(path) != path or not path.isprintable()
    return hides or bool(set("\\;\ufffd") & set(path)) or bool({".", ".."} & {each.strip() for each in path.split("/")})
