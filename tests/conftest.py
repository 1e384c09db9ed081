"""What tests of several folders share.

Hypothesis tries the same examples every time, so that a run says something about the change and not about luck;
`TWOSHIFT_RANDOM=1 make test` looks for new ones.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

with contextlib.suppress(ImportError):
    # It looks through every module that is there, and those of transformers 5.19 load others that take minutes
    import skops.io  # noqa: F401

if TYPE_CHECKING:
    from job_runs import JobFolder
    from real_postgres import RealPostgres

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has what it runs in the background ignore it, and so would the programs that tests interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("same", derandomize=True, deadline=None)  # the machine may be busy
settings.register_profile("random", deadline=None)
settings.load_profile("random" if os.environ.get("TWOSHIFT_RANDOM") else "same")


_FOLDERS = ("e2e", "fault", "contract", "unit")  # the longest modules first, so that all workers end together


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    items.sort(key=lambda item: _FOLDERS.index(item.path.relative_to(here).parts[0]))


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Of `-n auto`: more than cores for the whole suite, which waits for other processes half of its time."""
    if config.option.dist != "loadscope":
        return None
    return math.ceil(1.5 * len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else None


@pytest.fixture
def job(tmp_path: Path) -> Iterator[JobFolder]:
    """A folder with a small model and its input; what was started in it is ended."""
    from job_runs import JobFolder  # Arrow comes with it

    folder = JobFolder(tmp_path)
    folder.model()
    folder.parquet()
    yield folder
    folder.end()


@pytest.fixture(scope="session")
def postgres() -> Iterator[RealPostgres]:
    """A real one, of this process: each test has databases of its own in it."""
    from real_postgres import RealPostgres

    made = RealPostgres()
    yield made
    made.end()
