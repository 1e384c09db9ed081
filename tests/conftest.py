"""What tests of several folders share.

Hypothesis tries the same examples every time, so that a run says something about the change and not about luck;
`TWOSHIFT_RANDOM=1 make test` looks for new ones.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import signal
import threading
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from job_runs import JobFolder
    from real_postgres import RealPostgres

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has what it runs in the background ignore it, and so would the programs that tests interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: the machine may be busy
settings.register_profile("same", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=30)  # `make unit`
settings.register_profile("random", deadline=None)
settings.load_profile("random" if os.environ.get("TWOSHIFT_RANDOM") else "same")


_FOLDERS = ("e2e", "fault", "contract", "unit")  # the longest modules first, so that all workers end together


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent

    def place(item: pytest.Item) -> tuple[int, int]:
        """Modules of one subject, such as language models, need the same of the machine: they are dealt out."""
        path = item.path.relative_to(here)
        return _FOLDERS.index(path.parts[0]), zlib.crc32(bytes(path))

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is made here stays: a million objects of modules and tests, not to be looked through again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_xdist_auto_num_workers() -> int | None:
    """Of `-n auto`: two a core, as tests wait for disks, clocks and other processes half of their time."""
    return 2 * len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


_HUNG_S = 900.0  # more than pytest-timeout gives a test; it does not watch the end of one that it has stopped
_stderr = list[int]()


def pytest_configure(config: pytest.Config) -> None:
    _stderr.append(os.dup(2))  # what tests write is captured
    if config.option.markexpr != "not slow" and not config.getoption("numprocesses", None):
        with contextlib.suppress(ImportError):
            # It looks through every module that is there, and those of transformers 5.19 load others that take minutes
            import skops.io  # noqa: F401  # three seconds: not for the fast tests, which need no transformers
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Failures(config))


class _Failures:
    """Names each as it happens: of a run that is cut off, nothing else would be known."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and (terminal := self._config.pluginmanager.get_plugin("terminalreporter")) is not None:
            terminal.write_line(f"\nfailed: {report.nodeid} ({report.when}): {str(report.longrepr)[-300:]}")


class _Watch:
    """A test that hangs and cannot be stopped ends its process, with the stacks of all threads."""

    def __init__(self) -> None:
        self._running: tuple[str, float] | None = None  # the test, and when it began
        threading.Thread(target=self._look, daemon=True).start()  # one for all tests: each start takes time

    @contextlib.contextmanager
    def over(self, test: str) -> Iterator[None]:
        self._running = test, monotonic()
        try:
            yield
        finally:
            self._running = None

    def _look(self) -> None:
        pause = threading.Event()  # tests replace time.sleep
        while not pause.wait(_HUNG_S / 100):
            if (running := self._running) is not None and monotonic() > running[1] + _HUNG_S:
                os.write(_stderr[0], f"\n{running[0]} hangs:\n".encode())
                faulthandler.dump_traceback(_stderr[0])
                os._exit(1)


@cache
def _watch() -> _Watch:
    return _Watch()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with _watch().over(item.nodeid):
        return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """xdist gives all modules of a worker that died to the others, and one that gets a finished one waits for ever."""
    scheduler = node.config.pluginmanager.get_plugin("dsession").sched
    assigned = getattr(scheduler, "assigned_work", {}).get(node, {})  # of --dist loadscope
    for module in [module for module, tests in assigned.items() if all(tests.values())]:
        del assigned[module]


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, sched: Any) -> None:
    """The test that a worker died of has failed, and is not tried again."""
    for module, tests in [*getattr(sched, "workqueue", {}).items()]:
        if crashitem in tests:
            tests[crashitem] = True
            if all(tests.values()):
                del sched.workqueue[module]


@pytest.fixture(scope="session", autouse=True)
def _hints_by_package() -> Iterator[None]:
    """Hints that name what is missing one by one, however the sources under test are installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("twoshift.extras.installed_from", lambda: None)
        yield


@pytest.fixture
def job(tmp_path: Path) -> Iterator[JobFolder]:
    """A folder with a small model and its input; what was started in it is ended."""
    from job_runs import JobFolder  # Arrow comes with it

    folder = JobFolder(tmp_path)
    folder.model()
    folder.parquet()
    yield folder
    folder.end()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's chromium, driven by Playwright; of a module, because its event loop would be in the way of others."""
    playwright = pytest.importorskip("playwright.sync_api")
    from debian import debian_program

    chromium = debian_program("chromium", "chromium")
    with playwright.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield made
        made.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[RealPostgres]:
    """A real one, of this process: each test has databases of its own in it."""
    from real_postgres import RealPostgres

    made = RealPostgres()
    yield made
    made.end()
