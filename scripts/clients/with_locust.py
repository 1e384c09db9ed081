"""Locust: three seconds of four users."""

import sys
from pathlib import Path

from checks import URL, check, expect, ran, version

version("locust")


@check("embeddings, 4 users for 3 s, no failure")
def _() -> None:
    words = ["--headless", "--only-summary", "-u", "4", "-r", "4", "-t", "3s", "--host", URL]
    said = ran([sys.executable, "-m", "locust", "-f", str(Path(__file__).with_name("locustfile.py")), *words])
    expect("Aggregated" in said and "0(0.00%)" in said, said[-800:])
