"""Arrivals: made up, or taken from a trace."""

from __future__ import annotations

import csv
import datetime
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import InvalidInput, Malformed

__all__ = ["Arrivals", "parse_trace", "poisson"]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When live requests arrive, and how long their rows are."""

    times_s: NDArray[np.float64]  # rising, from 0
    tokens: NDArray[np.int64]  # of each row; a request's rows lie side by side
    horizon_s: float
    rows: int = 1  # of each request

    def rescaled(self, rate_per_s: float) -> Arrivals:
        """The same pattern, sped up or slowed down to a mean rate."""
        factor = len(self.tokens) / rate_per_s / self.horizon_s
        return replace(self, times_s=self.times_s * factor, horizon_s=self.horizon_s * factor)

    def scaled(self, lengths: float) -> Arrivals:
        """The same with rows that many times as long, of a token at least."""
        return replace(self, tokens=np.maximum(1, np.rint(self.tokens * lengths)).astype(np.int64))

    def cut(self, longest: int) -> Arrivals:
        """The same with no row over so many tokens."""
        return replace(self, tokens=np.minimum(self.tokens, longest))


def poisson(rate_per_s: float, horizon_s: float, rng: np.random.Generator, tokens: int = 1, rows: int = 1) -> Arrivals:
    """Independent requests of `rows` rows each, at a constant rate of rows."""
    count = int(rng.poisson(rate_per_s / rows * horizon_s))
    times = np.sort(rng.uniform(0.0, horizon_s, count))
    return Arrivals(times, np.full(count * rows, tokens, np.int64), horizon_s, rows)


def parse_trace(lines: Iterable[str], name: str = "trace") -> Arrivals:
    """A trace as CSV with the columns TIMESTAMP, ContextTokens (and GeneratedTokens, not used here)."""
    reader = csv.DictReader(lines)
    try:
        missing = {"TIMESTAMP", "ContextTokens"} - set(reader.fieldnames or ())
    except csv.Error as error:
        raise Malformed(f"{name}, line 1", f"comma-separated values ({error})") from None
    if missing:
        accepted = "a CSV file with the columns TIMESTAMP and ContextTokens"
        header = ", ".join(reader.fieldnames or ())
        raise Malformed(name, f"{accepted}; the {f'header of this file is: {header}' if header else 'file is empty'}")
    times: list[float] = []
    tokens: list[int] = []
    try:
        for number, row in enumerate(reader, start=2):
            times.append(_seconds(row["TIMESTAMP"], f"{name}, line {number}, TIMESTAMP"))
            tokens.append(_tokens(row["ContextTokens"], f"{name}, line {number}, ContextTokens"))
    except csv.Error as error:
        raise Malformed(f"{name}, line {reader.line_num}", f"comma-separated values ({error})") from None
    if len(times) < 2 or max(times) <= min(times):
        raise Malformed(name, f"at least two requests at different times; requests in this file: {len(times):,}")
    order = np.argsort(times, kind="stable")
    ordered = np.asarray(times, float)[order]
    horizon_s = float(ordered[-1] - ordered[0]) * len(times) / (len(times) - 1)
    return Arrivals(ordered - ordered[0], np.asarray(tokens, np.int64)[order], horizon_s)


def _seconds(text: str | None, field: str) -> float:
    try:
        moment = datetime.datetime.fromisoformat((text or "").strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return moment.timestamp()
    except (ValueError, OverflowError):
        raise InvalidInput(field, text, "a time such as 2023-11-16 18:17:03.9799600") from None


def _tokens(text: str | None, field: str) -> int:
    try:
        tokens = int(text or "")
    except ValueError:
        raise InvalidInput(field, text, "a whole number of tokens") from None
    if not 0 <= tokens <= 10**9:
        raise InvalidInput(field, text, "a number of tokens from 0 to 1,000,000,000")
    return max(1, tokens)
