"""All benchmarks, one after the other, or those that are named: `python bench/_all.py job serve`.

One that fails does not stop the others; what failed is said again at the end, and the exit code is 1.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent


def programs(names: Sequence[str], folder: Path = HERE) -> list[Path]:
    """Those of these names; all without any. Raises SystemExit for a name that there is not."""
    found = {path.stem: path for path in sorted(folder.glob("[a-z]*.py"))}
    if unknown := sorted(set(names) - set(found)):
        raise SystemExit(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(found)}")
    return [found[name] for name in names or found]


def run_all(paths: Sequence[Path]) -> int:
    """The exit code: 1 where one of them failed."""
    failed: list[str] = []
    for path in paths:
        print(f"== {path.stem}", flush=True)
        began_s = time.monotonic()
        code = subprocess.run([sys.executable, str(path)], check=False).returncode
        if code:
            failed.append(f"{path.stem} (exit code {code}, after {time.monotonic() - began_s:.0f} s)")
            print(f"FAILED: {failed[-1]}", flush=True)
    print(f"== {len(paths) - len(failed)} of {len(paths)} benchmarks ended well")
    for each in failed:
        print(f"FAILED: {each}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run_all(programs(sys.argv[1:])))
