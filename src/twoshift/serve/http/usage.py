"""What tenants have had of the devices, and what it costs."""

from __future__ import annotations

import csv
import io
import time
import urllib.parse
from collections.abc import Sequence
from copy import copy
from datetime import date
from typing import Literal, Protocol

import msgspec

from twoshift.endpoints.known import told_openai
from twoshift.endpoints.types import ErrorReply
from twoshift.errors import Disabled, Forbidden, InvalidInput, TwoshiftError
from twoshift.policy.plan.token_prices import TokenPrices, token_prices
from twoshift.serve.http.app import App, Exchange
from twoshift.serve.http.blocking_calls import BlockingCalls
from twoshift.serve.http.messages import Reply
from twoshift.serve.http.openapi import Operation
from twoshift.serve.keys import Access
from twoshift.usage_ports import DeviceUsage

__all__ = ["NoUsage", "UsageDesk", "add_usage"]

_ANSWER_S = 8.0
_GROUPS = ("day", "tenant", "lane", "model", "version")
_COUNTED = ("rows", "tokens", "device_s", "harvested_s", "usd", "unpriced_s", "output_tokens")
_PRICES = ("usd_per_million_input_tokens", "usd_per_million_output_tokens")
_ASKED = ("from", "to", "group_by", "tenant", "format")
_CSV = "text/csv; charset=utf-8"
_encoder = msgspec.json.Encoder()


class UsageDesk(Protocol):
    """Who keeps the ledger; its calls are made in threads."""

    def sums(self, first: str, last: str, group_by: Sequence[str], tenant: str | None = None) -> list[DeviceUsage]: ...


class NoUsage:
    """A desk without a ledger."""

    def __init__(self, why: str | TwoshiftError) -> None:
        self._why = why

    def start(self) -> None:
        """There is nothing to count."""

    def close(self) -> None:
        """There is nothing to write."""

    def sums(self, first: str, last: str, group_by: Sequence[str], tenant: str | None = None) -> list[DeviceUsage]:
        """Says why there is none."""
        raise Disabled("usage", self._why) if isinstance(self._why, str) else copy(self._why)


class UsageRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Usage of one group. `usd` is null if no price is set; `usd_per_million_*` if no tokens were generated."""

    rows: int
    tokens: int
    device_s: float
    harvested_s: float
    usd: float | None
    unpriced_s: float
    output_tokens: int
    usd_per_million_input_tokens: float | None
    usd_per_million_output_tokens: float | None
    day: str | None = None
    tenant: str | None = None
    lane: str | None = None
    model: str | None = None
    version: str | None = None


class UsageList(msgspec.Struct, kw_only=True):
    """Usage by group, sorted by the group keys."""

    object: Literal["list"] = "list"
    first: str = msgspec.field(name="from")
    last: str = msgspec.field(name="to")
    group_by: list[str]
    data: list[UsageRow]


class _Asked(msgspec.Struct, frozen=True):
    first: str
    last: str
    group_by: list[str]
    tenant: str | None
    as_csv: bool


def add_usage(app: App, desk: UsageDesk) -> None:
    """The path /v1/usage."""
    clerks = BlockingCalls(_ANSWER_S, "usage")

    async def face(exchange: Exchange) -> Reply:
        asked = _asked(exchange)
        found = await clerks.ask(desk.sums, asked.first, asked.last, asked.group_by, asked.tenant)
        if asked.as_csv:
            return Reply(200, _csv(asked.group_by, found), _CSV.encode())
        rows = [_row(each) for each in found]
        listed = UsageList(first=asked.first, last=asked.last, group_by=asked.group_by, data=rows)
        return Reply(200, _encoder.encode(listed))

    about = Operation(
        "Show device seconds, tokens, rows and dollars of a tenant; an admin key sees all tenants.",
        UsageList, ErrorReply, gives_also=("text/csv",), statuses=(400, 403, 503),
    )  # fmt: skip
    app.add("GET", "/v1/usage", face, told_openai, about, needs=Access.KEY)


def _asked(exchange: Exchange) -> _Asked:
    query = exchange.request.target.partition(b"?")[2].decode("latin-1")
    given = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
    for name in given:
        if name not in _ASKED:
            raise InvalidInput(name, given[name], f"one of the parameters {', '.join(_ASKED)}")
    today = time.strftime("%Y-%m-%d", time.gmtime())
    first, last = _day("from", given.get("from", f"{today[:8]}01")), _day("to", given.get("to", today))
    if first > last and "from" in given:
        accepted = f"{last} or an earlier day; {last} is the value of `to` (default: today, in UTC)"
        raise InvalidInput("from", first, accepted)
    if first > last:
        raise InvalidInput("to", last, f"{first} or a later day; for earlier days, set `from`, too")
    groups = [each for each in given.get("group_by", "day,tenant,lane,model").split(",") if each]
    if len(set(groups)) < len(groups) or not set(groups) <= set(_GROUPS):
        raise InvalidInput(
            "group_by", given["group_by"], f"one or several of {', '.join(_GROUPS)}, separated by commas"
        )
    return _Asked(
        first, last, groups, _tenant(exchange, given.get("tenant")), _wants_csv(exchange, given.get("format"))
    )


def _tenant(exchange: Exchange, given: str | None) -> str | None:
    """Whose usage it is; None: everybody's."""
    caller = exchange.caller
    if given is not None and not given.isprintable():
        raise InvalidInput("tenant", given, "a name without line breaks and control characters")
    if caller.is_admin or given == caller.tenant:
        return given
    if given is not None:
        raise Forbidden(
            f"this needs a key with the scope {Access.ADMIN}: the key {caller.name} sees only tenant {caller.tenant}"
        )
    return caller.tenant


def _wants_csv(exchange: Exchange, given: str | None) -> bool:
    if given not in (None, "csv", "json"):
        raise InvalidInput("format", given, "csv or json")
    accepts = exchange.request.header(b"accept") or ""
    return given == "csv" or (given is None and "text/csv" in accepts)


def _day(name: str, given: str) -> str:
    try:
        if len(given) == len("2026-01-31"):
            return date.fromisoformat(given).isoformat()
    except ValueError:
        pass
    raise InvalidInput(name, given, "a day such as 2026-01-31")


def _row(each: DeviceUsage) -> UsageRow:
    shown = {name: getattr(each, name) for name in (*_GROUPS, *_COUNTED)}
    return UsageRow(**shown, **dict(zip(_PRICES, _prices(each), strict=True)))


def _prices(each: DeviceUsage) -> TokenPrices:
    share = (each.output_usd or 0.0) / each.usd if each.usd else 0.0
    return token_prices(each.usd, share, each.tokens - each.output_tokens, each.output_tokens)


def _csv(groups: Sequence[str], found: Sequence[DeviceUsage]) -> bytes:
    made, columns = io.StringIO(), (*groups, *_COUNTED)
    writer = csv.writer(made, lineterminator="\n")
    writer.writerow((*columns, *_PRICES))
    for each in found:
        writer.writerow((*(_cell(getattr(each, name)) for name in columns), *_prices(each)))
    return made.getvalue().encode()


def _cell(value: str | float | None) -> str | float | None:
    """A text that a spreadsheet would run is only shown."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value
