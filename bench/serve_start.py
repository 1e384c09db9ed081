"""Start to ready of `twoshift serve minilm` with a stored profile, beyond what loading the model takes by itself.

Both are whole processes: from the command until /readyz says 200, and from the command until a process that does
nothing else has imported and loaded the model. They take turns; the median of the differences counts, as a share of its
limit (3 s).
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

from _servers import environment, first_reply, forget_profiles, free_port, running

LIMIT_S = 3.0
READY = b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
LOAD = "from twoshift.wiring.model_loading import load_model; load_model('minilm'); print('loaded', flush=True)"


def ready_s() -> float:
    """Seconds from the command to its first 200."""
    port = free_port()
    began_s = time.perf_counter()
    words = [sys.executable, "-m", "twoshift", "serve", "minilm", "--slo-ms", "2000", "--port", str(port)]
    with running("start", words) as pid:
        first_reply("start", pid, port, READY)
        return time.perf_counter() - began_s


def loaded_s() -> float:
    """Seconds from the command to the model."""
    began_s = time.perf_counter()
    words = [sys.executable, "-c", LOAD]
    with subprocess.Popen(words, env=environment({}), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), "it did not load"
        return time.perf_counter() - began_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    forget_profiles()
    ready_s()  # stores the profile, and the graph where there is none
    beyond_s = list[float]()
    for turn in range(options.turns):
        whole_s, alone_s = ready_s(), loaded_s()
        beyond_s.append(whole_s - alone_s)
        print(f"  turn {turn + 1}: ready after {whole_s:.2f} s; the model alone {alone_s:.2f} s", flush=True)
    median_s = statistics.median(beyond_s)
    print(f"start to ready beyond loading the model: {median_s:.2f} s, {median_s / LIMIT_S:.2f} of {LIMIT_S:.0f} s")
    return int(median_s > LIMIT_S)


if __name__ == "__main__":
    raise SystemExit(main())
