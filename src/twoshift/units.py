"""Numbers as people write them: `12h`, `1e9`, `400M`, `80GB`, `7B`, `5GB/s`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from twoshift.durations import format_duration
from twoshift.errors import InvalidInput

__all__ = ["counted", "format_bytes", "format_count", "format_duration", "parse_bytes", "parse_count", "parse_duration"]

_WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d+(?:_\d+)*)"
_NUMBER = re.compile(rf"\s*([+-]?(?:{_WHOLE}(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-zµ/]*)\s*", re.ASCII)
_MOST_CHARACTERS = 64

_COUNT = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "bn": 1e9, "T": 1e12}
_DURATION = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
_BYTES = {"": 1.0, "B": 1.0} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("KMGTP", start=1)
    for suffix, base in (("B", 1000.0), ("iB", 1024.0))
}


def parse_count(text: str, field: str = "count") -> float:
    """`1e9`, `400M`, `7B`, `20k` as a number."""
    return _parse(text, field, _COUNT, "a number such as 1e9, 400M, 7B or 20k")


def parse_duration(text: str, field: str = "duration") -> float:
    """`12h`, `90m`, `45s`, `250ms`, `1h30m` as seconds; a bare number is seconds."""
    accepted = "a duration such as 12h, 90m, 1h30m, 45s or 250ms"
    parts = re.findall(r"\d[\d.]*\s*[A-Za-z]+", text[:_MOST_CHARACTERS])
    if len(parts) > 1 and "".join(parts).replace(" ", "") == text.replace(" ", ""):
        return sum(_parse(part, field, _DURATION, accepted) for part in parts)
    return _parse(text, field, _DURATION, accepted)


def parse_bytes(text: str, field: str = "size") -> float:
    """`80GB`, `24GiB`, `5GB/s` as bytes (or bytes a second)."""
    plain = text.strip().removesuffix("/s")
    return _parse(plain, field, _BYTES, "a size such as 80GB, 24GiB or 500MB")


def _parse(text: str, field: str, units: Mapping[str, float], accepted: str) -> float:
    match = _NUMBER.fullmatch(text) if len(text) <= _MOST_CHARACTERS else None
    if match is None or match[2] not in units:
        raise InvalidInput(field, text, accepted)
    value = float(match[1].replace(",", "").replace("_", "")) * units[match[2]]
    if not math.isfinite(value):
        raise InvalidInput(field, text, f"{accepted}; this value is too large")
    return value


def format_count(value: float) -> str:
    """A count as people read it: `1.2 M`, `18,777,506` below a hundred million."""
    if abs(value) < 1e8:
        return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.4g} {unit}"
    raise AssertionError(value)


def format_bytes(value: float) -> str:
    """Bytes as people read them, in powers of a thousand: `14 GB`."""
    for size, unit in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if abs(value) >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.4g} B"


def counted(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun: `1 row`, `2 rows`."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
