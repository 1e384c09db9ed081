"""What child processes tell the system about themselves."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such name")
def test_the_system_shows_the_first_15_bytes_of_a_process_name() -> None:
    code = "from twoshift.parent_process import name_process; name_process('ts-rep-a-long-name')"
    shown = f"{code}; print(open('/proc/self/comm').read(), end='')"
    ran = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    assert ran.stdout == "ts-rep-a-long-n\n"
