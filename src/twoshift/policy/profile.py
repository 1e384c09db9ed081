"""A measured cost curve under a name."""

from __future__ import annotations

import hashlib
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.plan.row import RowSize
from twoshift.policy.threads import ThreadPlan
from twoshift.types import CallSize

__all__ = ["Profile", "checked_name", "healed_profile", "profile_name", "relearned_profile", "slowdown_now"]

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_NOISE = re.compile(r"\((?:R|TM)\)|\b(?:CPU|Processor)\b", re.IGNORECASE)  # of a device's name: says nothing
_DOUBT = 1.5  # times as quick, or as slow, as a curve says: it was measured in another moment
_QUICKER = 0.8  # of what a stored curve says: from here on it is worth a write
_CHANGED = 1.1  # times as long, or as short, as a stored curve says: from here on what was learned is worth a write
_WORD_CHARACTERS = 34  # two of them, the runtime and the precision stay below what a name may hold


def checked_name(name: str, field: str = "profile") -> str:
    """The name, if it is safe as a file name; raises InvalidInput otherwise."""
    if not _NAME.fullmatch(name):
        accepted = "a name of up to 100 letters, digits, '.', '_' or '-' that does not start with '.'"
        raise InvalidInput(field, name, accepted)
    return name


def profile_name(model: str, runtime: str, device: str, precision: str, checksum: str = "") -> str:
    """The name under which a model's curve on a device is stored: `minilm.onnxruntime.cpu-xeon-2-threads.fp32`.

    A path goes by its last part; give its checksum, because many files are called model.onnx.
    """
    kind, colon, name = device.partition(":")
    last = re.split(r"[/\\]", model.rstrip("/\\"))[-1]
    version = checksum.rpartition(":")[2][:8]
    named = f"{_word(last, 24)}-{version}" if version else _word(last)
    words = (named, _word(runtime, 14), _word(f"{kind}{colon}{_NOISE.sub(' ', name)}"), _word(precision, 10))
    return checked_name(".".join(words))


def _word(text: str, most: int = _WORD_CHARACTERS) -> str:
    """Letters, digits and hyphens of a text; a text that is too long is cut and gets a digest."""
    plain = re.sub(r"[^A-Za-z0-9_]+", "-", text).strip("-").lower() or "x"
    if len(plain) <= most:
        return plain
    return f"{plain[: most - 5].rstrip('-')}-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:4]}"


@dataclass(frozen=True, slots=True)
class Profile:
    """Measured cost of a model's calls on one device."""

    name: str
    cost: CallCost
    created_at: str  # RFC 3339, UTC
    samples: int
    row: RowSize = field(default_factory=RowSize)  # the typical row of the samples
    model: str = ""
    runtime: str = ""
    device: str = ""
    precision: str = ""
    checksum: str = field(default="", kw_only=True)  # of the weights that were measured
    parity: float | None = field(default=None, kw_only=True)  # a lossy precision's worst answer against full precision
    threads: ThreadPlan | None = field(default=None, kw_only=True)  # of the calls that were measured, where chosen
    # Of a language model's steps while live requests alone are served, with what those cost the host
    live_cost: CallCost | None = field(default=None, kw_only=True)
    stream_token_s: float = field(default=0.0, kw_only=True)  # that a token costs the host where it is streamed

    @property
    def served_cost(self) -> CallCost:
        """What requests get that come one by one."""
        return self.live_cost or self.cost

    def __post_init__(self) -> None:
        checked_name(self.name)


def slowdown_now(stored: Profile, seen: Iterable[tuple[CallSize, float]]) -> float | None:
    """How many times as slow as its profile a device is, by calls of which each was the fastest of its size just now.

    1 where they agree. None where one was far quicker: the profile is from a busy moment, and to be measured again.
    """
    ratios = [seconds / stored.cost.seconds(size) for size, seconds in seen]
    if not ratios or all(1 / _DOUBT <= ratio <= _DOUBT for ratio in ratios):
        return 1.0
    if min(ratios) < 1 / _DOUBT:
        return None
    return statistics.median(ratios)


def healed_profile(stored: Profile, cost: CallCost, created_at: str, can_slow: bool = False) -> Profile | None:
    """The profile with the curve that has shown to be true; None where it is about what is stored.

    One that is far slower is taken where `can_slow`: a profile that was measured on a device that has got slower.
    """
    one = stored.row.call(1)
    pace = cost.seconds(one) / stored.cost.seconds(one)
    if _QUICKER < pace < _DOUBT or (pace >= _DOUBT and not can_slow):
        return None
    return replace(stored, cost=cost, created_at=created_at)


def relearned_profile(
    stored: Profile,
    learned: tuple[CallCost | None, CallCost | None],
    sizes: Iterable[CallSize],
    created_at: str,
    can_slow: bool = False,
) -> Profile | None:
    """The profile with curves as they were learned, whatever their shape; None where such calls take what is stored.

    `learned` are those of steps beside background work and of live requests alone, where such steps were seen. Curves
    by which any call is slower are taken where `can_slow`.
    """
    known = zip(learned, (stored.cost, stored.served_cost), strict=True)
    pairs = [(new, old) for new, old in known if new is not None]
    paces = [new.seconds(size) / old.seconds(size) for size in sizes for new, old in pairs] or [1.0]
    is_slower, is_quicker = max(paces) > _CHANGED, min(paces) < 1 / _CHANGED
    if not (is_slower or is_quicker) or (is_slower and not can_slow):
        return None
    cost, live_cost = learned
    return replace(stored, cost=cost or stored.cost, live_cost=live_cost or stored.live_cost, created_at=created_at)
