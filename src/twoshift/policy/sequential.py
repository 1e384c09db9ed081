"""Tests that may be looked at after every observation: e-values, which are bets against a hypothesis.

While the hypothesis is true, the chance that a bet's wealth ever reaches 1/alpha is at most alpha (Ville's inequality).
Several bets on one hypothesis are averaged: their mean is such a bet, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

__all__ = [
    "e_value",
    "log_above",
    "log_below",
    "log_mean",
    "lower_bound",
    "odds_steps",
    "odds_wealth",
    "requests_until_below",
    "stake_steps",
    "upper_bound",
    "wealth",
]

_MOST = 690.0  # e^690 is still a float
_WORSE_ODDS = (10.0, 30.0, 100.0, 300.0)
_STAKES = (0.1, 0.3, 0.6, 0.95)  # of what may be lost in one observation
_HIGHER_ODDS = (1.1, 1.3, 2.0, 5.0)
_LOWER_ODDS = ((0.02, 0.3), (0.1, 0.2), (0.3, 0.15), (0.6, 0.1), (0.8, 0.1), (0.9, 0.1), (0.95, 0.05))
_FAR = 1e9  # requests: further than this is not foreseen


def odds_wealth() -> list[float]:
    """The logarithms of new bets for `odds_steps`."""
    return [0.0] * len(_WORSE_ODDS)


def wealth() -> list[float]:
    """The logarithms of new bets for `stake_steps`."""
    return [0.0] * len(_STAKES)


def odds_steps(by_candidate: bool, share: float) -> Iterable[float]:
    """What one failure adds to each bet that failures are the candidate's more often than its share of requests."""
    for odds in _WORSE_ODDS:
        yield (math.log(odds) if by_candidate else 0.0) - math.log1p(share * (odds - 1))


def stake_steps(difference: float, most_lost: float) -> Iterable[float]:
    """What one difference of at least -most_lost adds to each bet that their mean is above 0."""
    for stake in _STAKES:
        yield math.log1p(stake / most_lost * difference)


def log_mean(logs: Sequence[float]) -> float:
    """The logarithm of the mean of bets whose logarithms these are."""
    most = max(logs)
    return most + math.log(math.fsum(math.exp(each - most) for each in logs) / len(logs))


def e_value(log: float) -> float:
    """A logarithm as a finite number."""
    return math.exp(min(log, _MOST))


def log_above(seen: float, of: float, limit: float) -> float:
    """Evidence, as a logarithm, that a share is above this limit; falls as the limit grows."""
    return log_mean([_log_ratio(seen, of, limit, odds) for odds in _HIGHER_ODDS])


def log_below(seen: float, of: float, limit: float) -> float:
    """Evidence, as a logarithm, that a share is below this limit; grows with the limit."""
    if limit >= 1:
        return math.inf
    if limit <= 0:
        return -math.inf
    logs = [math.log(weight) + _log_ratio(seen, of, limit, odds) for odds, weight in _LOWER_ODDS]
    return log_mean(logs) + math.log(len(logs))


def lower_bound(seen: float, of: float, alpha: float) -> float:
    """The share is above this at every look, but with a chance of alpha."""
    return _crossing(lambda limit: log_above(seen, of, limit) < -math.log(alpha)) if seen else 0.0


def upper_bound(seen: float, of: float, alpha: float) -> float:
    """The share is below this at every look, but with a chance of alpha."""
    return _crossing(lambda limit: log_below(seen, of, limit) >= -math.log(alpha)) if of else 1.0


def requests_until_below(seen: int, of: int, limit: float, alpha: float) -> int | None:
    """About how many more requests show that the share is below the limit if it stays as it is; None: it would not."""
    if limit <= 0:
        return None
    weight = 1 / limit  # a few requests say little: until then a quarter of the limit is supposed
    share = (seen + 0.25) / (of + weight)
    needed, total = -math.log(alpha), float(max(of, 1))
    while _expected(seen, of, share, total, limit) < needed:
        total *= 1.1
        if total > _FAR:
            return None
    return max(0, math.ceil(total - of))


def _expected(seen: int, of: int, share: float, total: float, limit: float) -> float:
    return log_below(seen + share * max(0.0, total - of), total, limit)


def _log_ratio(seen: float, of: float, limit: float, odds: float) -> float:
    """The likelihood ratio of a share with these odds, relative to the limit's, against the limit."""
    return seen * math.log(odds) - of * math.log1p(limit * (odds - 1))


def _crossing(holds: Callable[[float], bool]) -> float:
    """Where a condition that holds for large shares begins to."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
