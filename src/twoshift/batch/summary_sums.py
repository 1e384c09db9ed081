"""Fields of a job's summary, by what they are summed over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from twoshift.batch.impact import LiveImpact
from twoshift.batch.part_stats import PartStats
from twoshift.batch.plan import Plan
from twoshift.batch.run_record import RunRecord
from twoshift.policy.plan.token_prices import token_prices

__all__ = ["of_parts", "of_plan", "of_runs", "of_tokens"]

_FAILED_ROWS = 20


def of_runs(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Over all runs of a job."""
    harvested_s, busy_s = sum(run.harvested_s for run in runs), sum(run.busy_s for run in runs)
    return {
        "retries": sum(run.retries for run in runs),
        "speculated": sum(run.speculated for run in runs),
        "deaths": tuple(reason for run in runs for reason in run.deaths),
        "failures": dict(sum((Counter(run.failures) for run in runs), Counter[str]())),
        "failed_calls": sum(run.failed_calls for run in runs),
        "out_of_memory": sum(run.out_of_memory for run in runs),
        "harvested_s": harvested_s,
        "riding_s": sum(run.riding_s for run in runs),
        "dedicated_s": max(0.0, busy_s - harvested_s),
        "live": LiveImpact.over(run.live for run in runs),
        "lost_s": sum(run.lost_s for run in runs),
    }


def of_parts(stats: Sequence[PartStats]) -> dict[str, Any]:
    """Over its parts."""
    return {
        "cached_tokens": sum(each.cached_tokens for each in stats),
        "skipped": sum(each.skipped for each in stats),
        "split": sum(each.split for each in stats),
        "failed_rows": tuple(row for each in stats for row in each.failed)[:_FAILED_ROWS],
    }


def of_plan(plan: Plan) -> dict[str, Any]:
    """What its plan says."""
    return {
        "inputs": plan.settings.inputs,
        "output": plan.settings.output,
        "adapters": {each.name: each.checksum for each in plan.model.adapters},
        "quality": plan.model.quality,
    }


def of_tokens(stats: Sequence[PartStats], runs: Sequence[RunRecord], usd: float | None) -> dict[str, Any]:
    """What a language model generated, and what its tokens cost."""
    busy_s = sum(run.busy_s for run in runs)
    output_share = sum(run.output_s for run in runs) / busy_s if busy_s else 0.0
    read, made = sum(each.tokens for each in stats), sum(each.output_tokens for each in stats)
    prices = token_prices(usd, output_share, read, made)
    return {
        "output_tokens": made,
        "usd_per_million_input": prices.input,
        "usd_per_million_output": prices.output,
    }
