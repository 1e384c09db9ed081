"""Python's search for garbage, put off while a library with a million objects is loaded: they all stay."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["no_collections", "skip_what_is_there"]


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Python looks for no garbage by itself."""
    was_enabled, was_frozen = gc.isenabled(), gc.get_freeze_count() > 0
    gc.disable()
    try:
        yield
    finally:
        if not was_frozen:
            gc.unfreeze()
        if was_enabled:
            gc.enable()


def skip_what_is_there() -> None:
    """Until then, whoever asks for a search has new objects searched only: vLLM asks five times as it loads."""
    gc.freeze()
