from __future__ import annotations

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("pyarrow") else ["test_*.py"]  # `make unit` does without
