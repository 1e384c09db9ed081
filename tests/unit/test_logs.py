"""Lines of the log, as text and as JSON."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys

from twoshift.logs import formatter_of

_PROGRAM = """
import logging, subprocess, sys, warnings
from twoshift.cli import main
from twoshift.cli.output import draws_progress, note
from twoshift.logs import log_as

log_as("json")
sys.stderr.isatty = lambda: True
assert not draws_progress()
note("  a note")
logging.getLogger("asyncio").warning("of a library")
warnings.warn("by Python", UserWarning)
assert main(["plan", "cost", "--nothing"]) == 2
child = "import logging; from twoshift.logs import *; follow_parent_log(); logging.getLogger('twoshift').error('below')"
subprocess.run([sys.executable, "-c", child], check=True)
"""


def _record(**more: object) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "a", "msg": "%s of %d", "args": ("one", 2), "levelname": "INFO", **more})


def test_an_object_has_the_fields_of_its_record_and_its_message() -> None:
    told = json.loads(formatter_of("json").format(_record(fields={"rows": 3, "message": "its own\n"})))
    assert {"level": "info", "logger": "a", "message": "its own\n", "rows": 3}.items() <= told.items()
    assert json.loads(formatter_of("json").format(_record()))["message"] == "one of 2"


def test_a_traceback_stays_in_the_line_of_its_error() -> None:
    error = ValueError("wrong")
    line = formatter_of("json").format(_record(exc_info=(ValueError, error, None)))
    assert "\n" not in line
    assert "ValueError: wrong" in json.loads(line)["exception"]


def test_text_is_a_time_and_the_message() -> None:
    assert formatter_of("text").format(_record()).endswith(" one of 2")


def test_notes_errors_warnings_and_child_processes_write_json_too() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TWOSHIFT_LOG_FORMAT"}
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    found = [(line["level"], line["message"]) for line in lines]
    assert found[:2] == [("info", "a note"), ("warning", "of a library")]
    assert "UserWarning: by Python" in found[2][1]
    assert found[3][0] == "error"
    assert "--nothing" in found[3][1]
    assert found[-1] == ("error", "below")
