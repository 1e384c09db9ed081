"""What is imported before the tests of models are."""

from __future__ import annotations

import contextlib

with contextlib.suppress(ImportError):
    # It looks through every module that is there, and those of transformers 5.19 load others that take minutes
    import skops.io  # noqa: F401
