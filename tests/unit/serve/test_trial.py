"""What a candidate that ends the process leaves behind for the next start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from twoshift.serve.trial import Trial

_PROGRAM = """
import ctypes, os, sys
from pathlib import Path
from twoshift.serve.trial import Trial

trial = Trial(Path(sys.argv[1]), "ro-1")
assert trial.why_not() == ""
trial.begin()
exec(sys.argv[2])
"""


def _ended(folder: Path, how: str) -> Trial:
    subprocess.run([sys.executable, "-c", _PROGRAM, str(folder), how], capture_output=True, check=False)
    return Trial(folder, "ro-1")


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("os._exit(3)", "the version crashed the server during its test: os._exit(3) in __main__"),
        (
            "ctypes.string_at(0)",
            "the version crashed the server during its test: Fatal Python error: Segmentation fault",
        ),
        ("os.abort()", "the version crashed the server during its test: Fatal Python error: Aborted"),
    ],
)
def test_a_candidate_that_ends_the_process_is_not_tried_again(tmp_path: Path, how: str, told: str) -> None:
    assert _ended(tmp_path, how).why_not() == told


def test_a_server_that_was_killed_tries_once_more_and_not_twice(tmp_path: Path) -> None:
    assert _ended(tmp_path, "os.kill(os.getpid(), 9)").why_not() == ""
    assert (
        "the server was killed or ran out of memory 2 times while the version was tested"
        in _ended(tmp_path, "os.kill(os.getpid(), 9)").why_not()
    )


def test_a_trial_that_ended_well_leaves_nothing(tmp_path: Path) -> None:
    assert _ended(tmp_path, "trial.end(); os._exit(3)").why_not() == ""
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_ends_itself_blames_nobody(tmp_path: Path) -> None:
    assert _ended(tmp_path, "__name__ = 'twoshift.server'; os._exit(1)").why_not() == ""
