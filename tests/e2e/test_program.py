"""The installed program, as a user's shell runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from waiting import until

PROGRAM = Path(sys.executable).with_name("twoshift")


def run(*words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=120, env=env)


def test_the_program_is_where_setup_puts_it() -> None:
    assert PROGRAM.is_file()
    assert run("--version").stdout.startswith("twoshift ")


def test_json_is_the_only_thing_on_stdout() -> None:
    done = run("sim", "lanes", "--seconds", "1", "--background", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["policy"] == "twoshift"


def test_bad_input_ends_with_two_and_no_traceback() -> None:
    done = run("plan", "cap", "--overhead-ms", "6", "--item-ms", "minus", "--slo-ms", "100")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--item-ms" in done.stderr
    assert "minus" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_error_message() -> None:
    command = f"'{PROGRAM}' plan sweep --overhead-ms 6 --item-ms 0.18 | head -n 1"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_a_full_disk_leaves_no_half_written_profile(tmp_path: Path) -> None:
    (tmp_path / "samples.csv").write_text("batch,ms\n1,6.2\n2,6.4\n4,6.8\n8,7.4\n")
    home = tmp_path / "home"
    # without bytecode: Python itself would leave files of 16 bytes where no larger ones can be written
    environment = {**os.environ, "TWOSHIFT_HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    words = ["plan", "fit", str(tmp_path / "samples.csv"), "--save", "mine"]
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16)); "
    limited += "from twoshift.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", limited, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert [path for path in home.rglob("*") if path.is_file()] == []
    assert run(*words, env=environment).returncode == 0
    assert [path.name for path in home.rglob("*") if path.is_file()] == ["mine.json"]


def test_an_interrupt_ends_the_work_at_once_and_quietly() -> None:
    words = [PROGRAM, "sim", "job", "--items", "1e9", "--workers", "10000", "--rate", "100", "--json"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: cpu_s(process.pid) > 1.5)  # it has imported what it needs, and works
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err


def cpu_s(pid: int) -> float:
    """What it has had of the processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_the_makefile_says_what_it_can_do() -> None:
    root = Path(__file__).resolve().parents[2]
    listed = subprocess.run(["make", "-C", root, "help"], capture_output=True, text=True, timeout=120).stdout
    for target in ("setup", "demo", "test", "unit", "check", "bench", "docs"):
        assert f"\n{target} " in f"\n{listed}"
