"""What the demo has measured, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
from live import Live, Reply, percentile_ms
from server import Server

from twoshift import CallCost, cost_table

__all__ = ["Figures", "Lane", "Moments", "Parity", "Rows", "lane_of", "parity_of", "reference", "rows_of"]

LIVE_PRICE, BATCH_PRICE = 3.00, 0.90  # dollars an hour, as in the reference
_SETTLE_S = 0.5
_PATIENT = {"x-request-timeout-ms": "30000"}  # parity is no matter of time


@dataclass(slots=True)
class Moments:
    """When what happened, on the monotonic clock."""

    began_s: float
    job_began_s: float = 0.0
    killed_s: float = 0.0
    back_s: float = 0.0  # as many replicas as before
    job_ended_s: float = 0.0
    ended_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Lane:
    """What a lane has had so far."""

    rows: float
    device_s: float

    def since(self, before: Lane) -> Lane:
        return Lane(self.rows - before.rows, self.device_s - before.device_s)

    def usd_per_million(self, price_usd_per_hour: float) -> float:
        """By the device time of a row."""
        return 1e6 * self.device_s / max(1.0, self.rows) * price_usd_per_hour / 3600


@dataclass(frozen=True, slots=True)
class Parity:
    """The same texts by both shifts: the cosines of their vectors."""

    sample: int
    least: float
    mean: float


@dataclass(frozen=True, slots=True)
class Rows:
    """The job's input against its output."""

    asked: int
    found: int  # once each
    twice: int
    errors: int

    @property
    def lost(self) -> int:
        return self.asked - self.found


@dataclass(slots=True)
class Figures:
    """Everything that is printed and reported."""

    replicas: int
    slo_ms: float
    live_per_s: float
    moments: Moments
    live: Live
    alone: Lane  # live rows before the job
    beside: Lane  # live rows during it
    batch: Lane
    parity: Parity
    rows: Rows
    job: dict[str, Any]
    seconds: float
    reference: tuple[float, float] = field(default_factory=lambda: reference())

    def without_job(self) -> list[Reply]:
        """Requests before and after it."""
        at = self.moments
        return self.live.between((at.began_s, at.job_began_s), (at.job_ended_s + _SETTLE_S, at.ended_s))

    def with_job(self) -> list[Reply]:
        """Requests beside it, the kill included."""
        return self.live.between((self.moments.job_began_s, self.moments.job_ended_s))

    @property
    def job_s(self) -> float:
        return max(1e-3, self.moments.job_ended_s - self.moments.job_began_s)

    @property
    def job_problem(self) -> str:
        """Why the job is not done; empty where it is."""
        state = self.job.get("state", "done")
        return "" if state == "done" else f"the job is {state}: {self.job['reason']}"

    @property
    def recovered_s(self) -> float | None:
        """From the kill until there were as many replicas again; None where there never were."""
        return self.moments.back_s - self.moments.killed_s if self.moments.back_s else None

    @property
    def fleet_usd(self) -> tuple[float, float]:
        """Dollars a million rows of the whole fleet, idle time paid: with live rows alone, and with both."""
        hour_usd = self.replicas * LIVE_PRICE / 3600
        alone_s = self.moments.job_began_s - self.moments.began_s
        both = self.beside.rows + self.batch.rows
        return 1e6 * hour_usd * alone_s / max(1.0, self.alone.rows), 1e6 * hour_usd * self.job_s / max(1.0, both)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        without, beside = self.without_job(), self.with_job()
        return {
            "replicas": self.replicas,
            "slo_ms": self.slo_ms,
            "live_per_s": self.live_per_s,
            "live_without_job": _latency(without),
            "live_with_job": _latency(beside),
            "harvested_rows_per_s": self.batch.rows / self.job_s,
            "job_seconds": self.job_s,
            "recovered_seconds": self.recovered_s,
            "usd_per_million": {
                "live": self.alone.usd_per_million(LIVE_PRICE),
                "batch": self.batch.usd_per_million(BATCH_PRICE),
                "reference": dict(zip(("live", "batch"), self.reference, strict=True)),
                "fleet": dict(zip(("live_alone", "both_shifts"), self.fleet_usd, strict=True)),
            },
            "parity": {"sample": self.parity.sample, "least": self.parity.least, "mean": self.parity.mean},
            "rows": {"asked": self.rows.asked, "lost": self.rows.lost, "twice": self.rows.twice},
            "row_errors": self.rows.errors,
            "job_problem": self.job_problem,
            "seconds": self.seconds,
        }


def _latency(replies: list[Reply]) -> dict[str, float]:
    refused = sum(each.status not in (0, 200) for each in replies)
    return {
        "requests": len(replies),
        "p50_ms": percentile_ms(replies, 0.5),
        "p99_ms": percentile_ms(replies, 0.99),
        "refused": refused,
        "without_reply": sum(each.status == 0 for each in replies),
    }


def reference() -> tuple[float, float]:
    """The reference case in dollars a million: 6 ms a call and 0.18 ms an item, one at a time and 512 at a time."""
    rows = cost_table(CallCost.line(0.006, 0.00018), [1, 512], [LIVE_PRICE, BATCH_PRICE]).rows
    return rows[0].usd_per_million, rows[-1].usd_per_million


def lane_of(server: Server, lane: str) -> Lane:
    """What it has had since the start."""
    return Lane(server.counted("rows_total", lane=lane), server.counted("device_seconds_total", lane=lane))


def rows_of(output: Path, asked: int) -> tuple[Rows, dict[int, np.ndarray]]:
    """What lies in the job's folder, and its vectors by id."""
    if not any(output.glob("part-*.parquet")):
        return Rows(asked, 0, 0, 0), {}
    table = ds.dataset([str(each) for each in sorted(output.glob("part-*.parquet"))]).to_table()
    ids, errors = table["id"].to_pylist(), table["error"].to_pylist()
    vectors = table["embedding"].to_pylist()
    known = set(ids)
    found = Rows(asked, len(known & set(range(asked))), len(ids) - len(known), sum(each is not None for each in errors))
    return found, {each: np.array(vector) for each, vector in zip(ids, vectors, strict=True) if vector is not None}


def parity_of(server: Server, model: str, texts: list[str], vectors: dict[int, np.ndarray], sample: int) -> Parity:
    """Ask for some of the job's texts as live requests."""
    chosen = [*vectors][:: max(1, len(vectors) // sample)][:sample]
    cosines = list[float]()
    for each in chosen:
        reply = server.ask("POST", "/v1/embeddings", {"model": model, "input": texts[each]}, _PATIENT)
        online, batch = np.array(reply["data"][0]["embedding"]), vectors[each]
        cosines.append(float(online @ batch / (np.linalg.norm(online) * np.linalg.norm(batch))))
    return Parity(len(cosines), min(cosines, default=0.0), sum(cosines) / max(1, len(cosines)))
