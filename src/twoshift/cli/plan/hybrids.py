"""`plan hybrid`: which share of the keys to precompute."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from twoshift.cli.commands import command
from twoshift.cli.output import plain, pretty, show, table
from twoshift.cli.params import JsonFlag, duration, share, text, usd, whole
from twoshift.cli.plan.app import app
from twoshift.cli.plan.curves import ItemMs, OverheadMs, ProfileName, RowTokens, chosen_curve
from twoshift.errors import InvalidInput, NotFound
from twoshift.extras import needed
from twoshift.policy.plan.hybrid import HybridAsk, HybridPlan, plan_hybrid
from twoshift.policy.plan.table import doublings, knee
from twoshift.units import format_duration

__all__ = ["hybrid_command"]

_LARGEST_CALL = 4096  # rows of a job's calls


@command(
    app,
    "hybrid",
    """
    twoshift plan hybrid requests.csv --span 24h --every 24h --keys 10M \\
        --overhead-ms 5 --item-ms 0.5 --price 0.80
    """,
    fields={"trace_s": "span", "refresh_s": "every"},
)
def hybrid_command(
    trace: Annotated[
        str,
        typer.Argument(
            help="CSV or Parquet file of requests: a column `key` with one row per request, or columns `key` and "
            "`count` with one row per key."
        ),
    ],
    span: Annotated[float, duration("Time that the trace covers.")],
    price: Annotated[float, usd("Price of one device in dollars per hour.")],
    every: Annotated[
        float, duration("Time between two runs of the job that precomputes answers.", shown="24h")
    ] = 86_400.0,
    keys: Annotated[
        int | None, whole("Number of keys that could be precomputed.", shown="the number of keys in the trace")
    ] = None,
    column: Annotated[str, text("Column of the trace that contains the key.", metavar="COLUMN")] = "key",
    live_rows: Annotated[int, whole("Rows per forward call of live requests.")] = 1,
    live_busy: Annotated[
        float, share("Share of the time in which the devices for live requests are busy.", zero=False)
    ] = 0.3,
    profile: ProfileName = None,
    overhead_ms: OverheadMs = None,
    item_ms: ItemMs = None,
    row_tokens: RowTokens = None,
    as_json: JsonFlag = False,
) -> None:
    """Find the cheapest share of keys to precompute, from a trace of the requests for each key."""
    source = chosen_curve(overhead_ms, item_ms, profile, row_tokens)
    usd_per_s = price / 3600.0
    rows = knee(source.cost, doublings(_LARGEST_CALL), source.row) or _LARGEST_CALL
    batch_s = source.cost.seconds(source.row.call(rows)) / rows
    live_s = source.cost.seconds(source.row.call(live_rows)) / live_rows / live_busy
    ask = HybridAsk(batch_s * usd_per_s, live_s * usd_per_s, span, every, keys)
    made = plan_hybrid(ask, _counts(trace, column))
    lines = [
        [f"{each.share:.2%}", pretty(each.keys), f"{each.hit_share:.1%}", f"{each.usd_per_day:,.4g}",
         "<- cheapest" if each == made.best else ""]
        for each in made.points
    ]  # fmt: skip
    words = _words(made, every)
    data = {**plain(made), "batch_row_s": batch_s, "live_row_s": live_s, "curve": source.name, "words": words}
    show(as_json, data, table(["precomputed", "keys", "hits", "usd/day", "<"], lines), words)


def _words(made: HybridPlan, every_s: float) -> str:
    best, none = made.best, made.points[0]
    if not best.keys:
        return "Precompute nothing: every key is cheaper to compute live."
    saved = (
        f"{1 - best.usd_per_day / none.usd_per_day:.0%} less than without precomputed answers"
        if none.usd_per_day
        else "the same as without precomputed answers"
    )
    asked = f"{made.least_requests:.3g} times in {format_duration(every_s)}"
    return (
        f"Precompute the keys that are requested at least {asked}: {best.share:.1%} of the keys. Then "
        f"{best.hit_share:.1%} of the requests are hits. This costs {best.usd_per_day:,.4g} dollars a day, {saved}."
    )


def _counts(path: str, column: str) -> list[int]:
    """Requests of each key; raises InvalidInput that names what is wrong with the file."""
    if not Path(path).is_file():
        raise NotFound("trace", path, "an existing CSV or Parquet file")
    try:
        found = _parquet_counts(path, column) if path.endswith(".parquet") else _csv_counts(path, column)
    except (KeyError, ValueError, UnicodeDecodeError) as error:
        raise InvalidInput(
            "trace", path, f"a file with the column `{column}`, and with whole numbers in the column `count` ({error})"
        ) from error
    return [each for each in found.values() if each]


def _csv_counts(path: str, column: str) -> Counter[str]:
    found = Counter[str]()
    with Path(path).open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found[row[column]] += _whole(row.get("count"))
    return found


def _parquet_counts(path: str, column: str) -> Counter[object]:
    parquet = needed("pyarrow.parquet", "jobs", path, "trace")
    found = Counter[object]()
    with parquet.ParquetFile(path) as file:
        names = [name for name in (column, "count") if name in file.schema_arrow.names]
        for batch in file.iter_batches(columns=names):
            keys = batch.column(column).to_pylist()
            counts = batch.column("count").to_pylist() if "count" in names else [1] * len(keys)
            for key, count in zip(keys, counts, strict=True):
                found[key] += _whole(count)
    return found


def _whole(count: object) -> int:
    made = 1 if count is None else int(str(count))
    if made < 0:
        raise ValueError(f"count {made}")
    return made
