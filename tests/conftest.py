"""The same examples every time, so that a run says something about the change and not about luck.

`TWOSHIFT_RANDOM=1 make test` looks for new ones.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("same", derandomize=True)
if not os.environ.get("TWOSHIFT_RANDOM"):
    settings.load_profile("same")
