"""`usage`: what tenants have had of a server's devices."""

from __future__ import annotations

import sys
import urllib.parse
from typing import Annotated, Any

import typer

from twoshift.cli.app import app
from twoshift.cli.commands import command
from twoshift.cli.output import show, table
from twoshift.cli.params import JsonFlag, text
from twoshift.cli.server import SERVER_FIELDS, On, server_at
from twoshift.cli.tables import FittingTable
from twoshift.errors import Inapplicable

__all__ = ["usage_command", "usage_table"]

_COUNTED = ("rows", "tokens", "device s", "harvested s", "usd")
_TOKEN_PRICES = {  # of language models
    "usd_per_million_input_tokens": "$/M input tokens",
    "usd_per_million_output_tokens": "$/M output tokens",
}


@command(app, "usage", "twoshift usage --on http://127.0.0.1:8000 --group-by tenant,lane", SERVER_FIELDS)
def usage_command(
    on: On = None,
    first: Annotated[
        str | None,
        text(
            "First day of the period in UTC, such as 2026-01-31.",
            "--from",
            metavar="DAY",
            shown="the first of this month",
        ),
    ] = None,
    last: Annotated[
        str | None, text("Last day of the period in UTC, such as 2026-01-31.", "--to", metavar="DAY", shown="today")
    ] = None,
    group_by: Annotated[
        str, text("Columns to group by, separated by commas: day, tenant, lane, model, version.", metavar="NAMES")
    ] = "day,tenant,lane,model",
    tenant: Annotated[
        str | None,
        text(
            "Show only this tenant. To see a tenant other than your own, use an API key with the scope admin.",
            metavar="NAME",
        ),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show device seconds, tokens, rows and dollars by day, tenant, lane (live, micro or batch) and model."""
    if as_csv and as_json:
        raise Inapplicable("--csv", True, "with --json: use only one of the two")
    asked = {"from": first, "to": last, "group_by": group_by, "tenant": tenant, "format": "csv" if as_csv else None}
    given = urllib.parse.urlencode({name: value for name, value in asked.items() if value is not None})
    server = server_at(on)
    if as_csv:
        sys.stdout.write(server.text(f"/v1/usage?{given}"))
        return
    found = server.get(f"/v1/usage?{given}")
    shown = f"No usage from {found['from']} to {found['to']}."
    show(as_json, found, usage_table(found["group_by"], found["data"]) if found["data"] else shown)
    unpriced_s = sum(each["unpriced_s"] for each in found["data"])
    if unpriced_s and not as_json:
        sets = "Set the price with `twoshift serve --price`, or as price_usd_per_hour in the configuration file."
        typer.echo(f"{unpriced_s:,.1f} device seconds have no price. {sets}")


def usage_table(groups: list[str], data: list[dict[str, Any]]) -> FittingTable:
    """Whatever is the same in all rows stands above them, once: nine columns are too many for most terminals."""
    same = [name for name in groups if len(data) > 1 and len({each[name] for each in data}) == 1]
    different = [name for name in groups if name not in same]
    prices = _TOKEN_PRICES if any(each.get("output_tokens") for each in data) else {}
    columns = [*(f"{'<<' if name == 'day' else '<'}{name}" for name in different), *_COUNTED, *prices.values()]
    title = ", ".join(f"{name} {data[0][name]}" for name in same)
    rows = [[*_row(different, each), *(_dollars(each[name]) for name in prices)] for each in data]
    return table(columns, rows, title or None)


def _dollars(usd: float | None) -> str:
    return "-" if usd is None else f"{usd:,.4f}"


def _row(groups: list[str], each: dict[str, Any]) -> list[str]:
    counts = [f"{each['rows']:,}", f"{each['tokens']:,}", f"{each['device_s']:,.1f}", f"{each['harvested_s']:,.1f}"]
    return [*(str(each[name]) for name in groups), *counts, _dollars(each["usd"])]
