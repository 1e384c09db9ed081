"""How many examples Hypothesis tries."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["examples"]


def examples(count: int) -> int:
    """So many where other tests have a hundred; in a quick run fewer."""
    return max(1, count * settings().max_examples // 100)
