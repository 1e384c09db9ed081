from __future__ import annotations

import os
import subprocess
import sys

from twoshift.known_process import has_ended, is_running, place_here


def test_a_process_runs_until_it_has_ended() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert is_running(os.getpid())
    assert not is_running(ended.pid)
    assert not has_ended(place_here(), os.getpid())
    assert has_ended(place_here(), ended.pid) == bool(place_here())


def test_of_a_process_elsewhere_nobody_can_tell() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert not has_ended("another start of the machine", ended.pid)
    assert not has_ended("", ended.pid)
