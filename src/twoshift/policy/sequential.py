"""Tests that may be looked at after every observation: e-values, which are bets against a hypothesis.

While the hypothesis is true, the chance that a bettor's wealth ever reaches 1/alpha is at most alpha (Ville's
inequality). Several bets on one hypothesis are averaged: their mean is such a bet, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

__all__ = [
    "bet_on_difference",
    "bet_on_failure",
    "log_above",
    "log_below",
    "lower_bound",
    "new_difference_bets",
    "new_failure_bets",
    "requests_until_below",
    "upper_bound",
    "won",
]

_MOST = 690.0  # e^690 is still a float
_RESERVE, _PATIENCE = 0.1, 10.0  # of the wealth that is not staked at first, and how slowly it is
# what is supposed, and how much of the wealth is staked on it
_WORSE_ODDS = ((1.5, 0.05), (3.0, 0.1), (10.0, 0.15), (30.0, 0.3), (100.0, 0.25), (300.0, 0.15))
_STAKES = ((0.1, 0.25), (0.3, 0.25), (0.6, 0.25), (0.95, 0.25))  # of what may be lost in one observation
_HIGHER_ODDS = ((1.1, 0.25), (1.3, 0.25), (2.0, 0.25), (5.0, 0.25))
_LOWER_ODDS = ((0.02, 0.3), (0.1, 0.2), (0.3, 0.15), (0.6, 0.1), (0.8, 0.1), (0.9, 0.1), (0.95, 0.05))
_FAR = 1e9  # requests: further than this is not foreseen


def new_failure_bets() -> list[float]:
    """How many failures were bet on, then the logarithm of each bet's wealth."""
    return [0.0, *(math.log(weight * (1 - _RESERVE)) for _, weight in _WORSE_ODDS)]


def new_difference_bets() -> list[float]:
    """How many differences were bet on, then the logarithm of each bet's wealth."""
    return [0.0, *(math.log(weight * (1 - _RESERVE)) for _, weight in _STAKES)]


def bet_on_failure(bets: list[float], by_candidate: bool, share: float) -> None:
    """Update bets against: a failure is the candidate's with at most this probability, its share of the requests."""
    drip = _drip(bets)
    for index, (odds, weight) in enumerate(_WORSE_ODDS, start=1):
        step = (math.log(odds) if by_candidate else 0.0) - math.log1p(share * (odds - 1))
        bets[index] = _log_sum(bets[index], drip + math.log(weight)) + step


def bet_on_difference(bets: list[float], difference: float, most_lost: float) -> None:
    """Update bets against: differences, none below -most_lost, have a mean of at most 0."""
    drip = _drip(bets)
    for index, (stake, weight) in enumerate(_STAKES, start=1):
        bets[index] = _log_sum(bets[index], drip + math.log(weight)) + math.log1p(stake / most_lost * difference)


def won(bets: Sequence[float]) -> float:
    """The e-value: the bettor's wealth relative to the initial wealth."""
    return math.exp(min(_log_total(bets[1:]), _MOST))


def log_above(seen: float, of: float, limit: float) -> float:
    """Evidence, as a logarithm, that a share is above this limit; falls as the limit grows."""
    return _log_mixture(seen, of, limit, _HIGHER_ODDS)


def log_below(seen: float, of: float, limit: float) -> float:
    """Evidence, as a logarithm, that a share is below this limit; grows with the limit."""
    if not 0 < limit < 1:
        return math.inf if limit >= 1 else -math.inf
    return _log_mixture(seen, of, limit, _LOWER_ODDS)


def lower_bound(seen: float, of: float, alpha: float) -> float:
    """The share is above this bound at every look, except with probability alpha."""
    return _crossing(lambda limit: log_above(seen, of, limit) < -math.log(alpha), seen / of) if seen else 0.0


def upper_bound(seen: float, of: float, alpha: float) -> float:
    """The share is below this bound at every look, except with probability alpha."""
    return _crossing(lambda limit: log_below(seen, of, limit) >= -math.log(alpha), 1.0)


def requests_until_below(seen: float, of: int, limit: float, alpha: float) -> int | None:
    """About how many more requests show that the share is below the limit if it stays as it is; None: it would not."""
    needed, total = -math.log(alpha), float(of)
    if log_below(seen, of, limit) >= needed:
        return 0
    share = (seen + 0.25) / (of + 1 / limit) if limit > 0 else 1.0  # few requests say little: a quarter of the limit
    if share >= limit:
        return None
    while total < _FAR:
        total += max(1.0, total / 4)
        if log_below(seen + share * (total - of), total, limit) >= needed:
            return math.ceil(total - of)
    return None


def _drip(bets: list[float]) -> float:
    """A little of the reserve joins the bets each time, so that a long good time cannot outweigh a bad one after it."""
    count = bets[0] = bets[0] + 1
    return math.log(_RESERVE * _PATIENCE / ((count + _PATIENCE - 1) * (count + _PATIENCE)))


def _log_mixture(seen: float, of: float, limit: float, weighted_odds: Sequence[tuple[float, float]]) -> float:
    """Of the likelihood ratios of shares with these odds, relative to the limit's, against the limit."""
    return _log_total(
        [
            math.log(weight) + seen * math.log(odds) - of * math.log1p(limit * (odds - 1))
            for odds, weight in weighted_odds
        ]
    )


def _log_sum(one: float, other: float) -> float:
    high, low = (one, other) if one > other else (other, one)
    return high + math.log1p(math.exp(low - high))


def _log_total(logs: Sequence[float]) -> float:
    most = max(logs)
    return most + math.log(sum([math.exp(each - most) for each in logs]))


def _crossing(holds: Callable[[float], bool], high: float) -> float:
    """Where a condition that holds for large shares begins to; high is one of those."""
    low = 0.0
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
