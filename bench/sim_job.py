"""A billion items on 10,000 workers: time and memory of the whole command, as shares of 60 s and 2 GiB."""

from __future__ import annotations

import resource
import subprocess
import sys
import time

LIMIT_S, LIMIT_BYTES = 60.0, 2 * 2**30


def main() -> int:
    """Run the command once; 1 where it is over a limit."""
    command = [sys.executable, "-c", "from twoshift.cli import main; raise SystemExit(main())"]
    options = ["sim", "job", "--items", "1e9", "--workers", "10000", "--rate", "2000", "--window", "12h", "--json"]
    began_s = time.perf_counter()
    subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL)
    took_s = time.perf_counter() - began_s
    peak_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(f"time    {took_s:6.1f} s    {took_s / LIMIT_S:.2f} of {LIMIT_S:.0f} s")
    print(f"memory  {peak_bytes / 2**20:6.0f} MiB  {peak_bytes / LIMIT_BYTES:.2f} of 2 GiB")
    return int(took_s > LIMIT_S or peak_bytes > LIMIT_BYTES)


if __name__ == "__main__":
    raise SystemExit(main())
