"""The log on stderr: lines for people, or one JSON object a line."""

from __future__ import annotations

import datetime
import json
import logging
import os
from typing import Annotated

from twoshift.declare import setting
from twoshift.values import choice

__all__ = ["LogFormat", "follow_parent_log", "formatter_of", "log_as", "log_note", "writes_json"]

LogFormat = Annotated[
    str, setting("Format of the log on stderr: text, or json with one object per line.", choice(("text", "json")))
]
_INHERITED = "TWOSHIFT_LOG_FORMAT"  # child processes write as the one that has started them
_program = logging.getLogger("twoshift.program")  # what a command tells people


class _JsonLines(logging.Formatter):
    """`extra={"fields": {...}}` of a record go into its object; a message there takes the place of the text's."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds")
        told = {"time": at, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        told |= getattr(record, "fields", {})
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


def formatter_of(log_format: str) -> logging.Formatter:
    """Of lines with a time."""
    return _JsonLines() if log_format == "json" else logging.Formatter("%(asctime)s %(message)s")


def log_as(log_format: str) -> None:
    """The log of this program from now on, and of the processes that it starts; `text` leaves it as Python has it."""
    if log_format == "json":
        os.environ[_INHERITED] = log_format
        handler = logging.StreamHandler()
        handler.setFormatter(_JsonLines())
        logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
        logging.captureWarnings(True)
        _program.setLevel(logging.INFO)


def follow_parent_log() -> None:
    """In a process that a command has started: write as the command does."""
    log_as(os.environ.get(_INHERITED, "text"))


def writes_json() -> bool:
    """Whether what this process tells people has to be JSON."""
    return _program.level == logging.INFO


def log_note(message: str, level: int = logging.INFO) -> None:
    """Tell what is no request and no fault of the program's own; only where it writes JSON."""
    _program.log(level, message.strip())
