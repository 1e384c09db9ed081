"""What a language model's steps cost: as measured, and as learned while they run.

Steps that only decode run as one graph, those that read prompts do not; steps with background sequences cost the
interpreter what those without do not. Each kind has a curve of its own:

    seconds = rising line(measured curve)

which goes through what steps of each size took, so that steps of one size do not decide what others take.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from statistics import median

from twoshift.policy.cost import CallCost
from twoshift.policy.rising_line import RisingLine, Seen
from twoshift.policy.step_mix import StepMix
from twoshift.types import CallSize

__all__ = ["StepCurves"]

_PER_BUCKET = 9  # newest steps of about one size
_FEW = 3  # of them say less
_EVERY = 8  # steps between two looks, once there are enough
_HALF_LIFE_S = 20.0  # after which a size that was not seen again counts half
_LEAST_WEIGHT = 1e-3
_RESIDUALS = 64
_SAME = 0.02  # by which a plain curve may differ and is not told anew


class StepCurves:
    """Of steps beside background sequences, and of those of live ones alone (`alone`). A `Curve`."""

    def __init__(self, cost: CallCost, live: CallCost | None = None) -> None:
        """`live` is the curve of steps of live sequences alone, where it was learned before."""
        self._shared = _Kinds(cost)
        self.alone = _Kinds(live or cost, is_known=live is not None)
        self._shared.other, self.alone.other = self.alone, self._shared

    def observed(
        self,
        size: CallSize,
        seconds: float,
        ended_s: float,
        background: bool = True,
        next_reads: bool = False,
        prompts: int = 1,
    ) -> None:
        """Learn from one finished step, which had background sequences or not; another that reads may have begun.

        `prompts` is how many it read of, where it read.
        """
        (self._shared if background else self.alone).observed(size, seconds, ended_s, next_reads, prompts)

    def seconds(self, size: CallSize, quantile: float = 0.5) -> float:
        """Predicted seconds of a step with background sequences."""
        return self._shared.seconds(size, quantile)

    @property
    def cost(self) -> CallCost:
        """An approximation by one plain curve."""
        return self._shared.cost

    @property
    def learned(self) -> tuple[CallCost | None, CallCost | None]:
        """As they are to be remembered: beside background sequences, and alone; None where no such steps were seen."""
        return self._shared.learned, self.alone.learned


class _Kinds:
    """Steps that decode, and steps that read. A `Curve`."""

    def __init__(self, cost: CallCost, is_known: bool = False) -> None:
        self._decoding, self._reading = _Learned(cost, is_known), _Learned(cost, is_known)
        self._cost = cost
        self.other: _Kinds = self  # asked where nothing was seen here
        self._launch_s = 0.0  # of a step that reads, by how much longer the step before it took
        self._mix = StepMix()

    def observed(self, size: CallSize, seconds: float, ended_s: float, next_reads: bool, prompts: int) -> None:
        """A step ends for us once the next one is launched: what that took is the next one's."""
        if size.rows >= 1 and math.isfinite(seconds) and seconds > 0:
            decoding_s, reads = self._decoding.seconds(CallSize.uniform(size.rows), 0.5), size.longest > 1
            self._mix.add(seconds, decoding_s, prompts if reads else 0, size.tokens - size.rows)
        if size.longest > 1:
            self._reading.observed(size, seconds + self._launch_s, ended_s)
            self._launch_s = 0.0
        elif next_reads:
            self._launch_s = max(0.0, seconds - self.seconds(size))
        else:
            self._decoding.observed(size, seconds, ended_s)

    def seconds(self, size: CallSize, quantile: float = 0.5) -> float:
        """One that reads takes at least as long as one that decodes as many sequences."""
        decoding = _first_known(self._decoding, self.other._decoding)
        if size.longest <= 1:
            return decoding.seconds(size, quantile)
        reading_s = _first_known(self._reading, self.other._reading).seconds(size, quantile)
        return max(reading_s, decoding.seconds(CallSize.uniform(max(1, size.rows)), quantile))

    @property
    def learned(self) -> CallCost | None:
        """As one plain curve, where steps of its own were seen."""
        decoding, reading = self._decoding, self._reading
        return self._plain(decoding, reading) if decoding.is_known or reading.is_known else None

    @property
    def cost(self) -> CallCost:
        """The same with what the other has learned; the same one again while it says about the same."""
        found = self._plain(
            _first_known(self._decoding, self.other._decoding), _first_known(self._reading, self.other._reading)
        )
        if any(not _is_near(getattr(found, name), getattr(self._cost, name)) for name in _PARTS):
            self._cost = found
        return self._cost

    def _plain(self, decoding: _Learned, reading: _Learned) -> CallCost:
        """What reading costs is what all steps of late took together, where there were enough."""
        found = _plain(decoding, reading)
        mix = self._mix.reading(found.per_token_s)
        if mix is None:
            return found
        reading_s, token_s = mix
        row_s = found.per_row_s + found.per_token_s - token_s
        return replace(found, reading_s=reading_s, per_token_s=token_s, per_row_s=row_s)


_PARTS = ("overhead_s", "per_token_s", "per_row_s", "reading_s", "floor_s", "per_square_s")


def _is_near(one: float, other: float) -> bool:
    return abs(one - other) <= _SAME * max(one, other)


def _plain(decoding: _Learned, reading: _Learned) -> CallCost:
    """A step that decodes takes what `decoding` says; what one that reads takes beyond that, `reading` says."""
    decoded, read = decoding.plain(), reading.plain()
    row_s, token_s = decoded.per_row_s + decoded.per_token_s, read.per_token_s
    found = replace(
        decoded,
        per_token_s=token_s,
        per_row_s=max(0.0, row_s - token_s),
        per_square_s=read.per_square_s,
        reading_s=max(0.0, read.overhead_s + read.reading_s - decoded.overhead_s),
    )
    size = reading.last_size
    if size is None:
        return found
    # A row costs other steps something else than those that read: where it counts, both say the same
    off_s = reading.seconds(size, 0.5) - found.seconds(size)
    return replace(found, reading_s=max(0.0, found.reading_s + off_s))


def _first_known(own: _Learned, other: _Learned) -> _Learned:
    return other if other.is_seen and not own.is_known else own


class _Learned:
    """One kind's curve."""

    def __init__(self, measured: CallCost, is_known: bool = False) -> None:
        self._measured = measured
        self._line: RisingLine | None = None  # from measured seconds to those that were seen
        self.is_known = is_known  # from steps that were seen, now or before
        self.is_seen = False
        self.last_size: CallSize | None = None  # of a step that was seen
        self._spread = tuple[float, ...]()  # sorted: seen over predicted
        self._residuals: deque[float] = deque(maxlen=_RESIDUALS)
        # by half octaves of the measured curve's seconds: what it says, what was seen, and when
        self._seen: dict[int, deque[tuple[float, float, float]]] = {}
        self._since = 0

    def seconds(self, size: CallSize, quantile: float) -> float:
        usual_s = self._usual_s(self._measured.seconds(size))
        if quantile == 0.5:
            return usual_s
        if not self._spread:
            return usual_s * self._measured.seconds(size, quantile) / self._measured.seconds(size)
        return usual_s * max(1.0, self._spread[min(len(self._spread) - 1, int(quantile * len(self._spread)))])

    def plain(self) -> CallCost:
        """The line made straight, as a curve that begins at zero at the least."""
        if self._line is None:
            return self._measured
        scaled = self._measured.scaled(self._line.times)
        added_s = max(self._line.added_s, -scaled.overhead_s)
        reading_s = scaled.reading_s + min(0.0, self._line.added_s - added_s)
        return replace(scaled, overhead_s=scaled.overhead_s + added_s, reading_s=max(0.0, reading_s))

    def _usual_s(self, said_s: float) -> float:
        return said_s if self._line is None else self._line(said_s)

    def observed(self, size: CallSize, seconds: float, ended_s: float) -> None:
        if size.rows < 1 or not (math.isfinite(seconds) and seconds > 0):
            return  # a clock that did not move says nothing about the device
        self.last_size, said_s = size, self._measured.seconds(size)
        bucket = round(2 * math.log2(said_s))
        seen = self._seen.get(bucket)
        if seen is None:
            seen = self._seen[bucket] = deque(maxlen=_PER_BUCKET)
        seen.append((said_s, seconds, ended_s))
        self._residuals.append(seconds / self._usual_s(said_s))
        self._since += 1
        if self._since >= _EVERY or (not self.is_seen and self._since >= _FEW):
            self._since = 0
            self._learn(ended_s)

    def _learn(self, now_s: float) -> None:
        """The line through what each size took, the older the less."""
        self.is_known = self.is_seen = True
        self._line = RisingLine(
            [
                Seen(
                    median(said for said, _, _ in each),
                    median(took for _, took, _ in each),
                    min(1.0, len(each) / _FEW) * _weight(now_s - each[-1][2]),
                )
                for each in self._seen.values()
            ]
        )
        if len(self._residuals) >= _RESIDUALS // 2:
            self._spread = tuple(sorted(self._residuals))


def _weight(age_s: float) -> float:
    return max(_LEAST_WEIGHT, 0.5 ** (age_s / _HALF_LIFE_S))
