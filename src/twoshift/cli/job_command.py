"""A server's job as the command that goes on with it here."""

from __future__ import annotations

import shlex
from typing import Any

__all__ = ["FILE_ONLY", "OF_THE_SERVER", "OPTIONS", "SERVER_OPTIONS", "local_lines"]

# Every setting of a job is in one of these tables, which a test compares with the settings themselves
OPTIONS = {
    "text": "--text",
    "pair": "--pair",
    "prompt_name": "--prompt-name",
    "columns": "--columns",
    "types": "--types",
    "prompt": "--prompt",
    "system": "--system",
    "max_tokens": "--max-tokens",
    "temperature": "--temperature",
    "top_p": "--top-p",
    "seed": "--seed",
    "stop": "--stop",
    "json_schema": "--json-schema",
    "keep": "--keep",
    "input_format": "--input-format",
    "output_format": "--output-format",
    "shard_rows": "--shard-rows",
    "shard_seconds": "--shard-seconds",
    "max_errors": "--max-errors",
    "window": "--window",
    "price_usd_per_hour": "--price",
    "grace_seconds": "--grace",
    "load_seconds": "--load-timeout",
    "output": "-o",
}
SERVER_OPTIONS = {
    "weight": "--weight",
    "hours": "--hours",
    "max_live_load": "--max-live-load",
    "notify": "--notify",
}
FILE_ONLY = ("lease_seconds",)
# Not a job's to say on a server: how its model is loaded, on how many replicas; and what only batches have
OF_THE_SERVER = (
    "precision", "trust_pickle", "device", "threads", "workers", "engine", "address", "resources", "endpoint",
    "due_unix_s",
)  # fmt: skip
_DEFAULTS = {
    "output_format": "parquet",
    "max_tokens": 256,
    "temperature": 0.0,
    "top_p": 1.0,
    "shard_seconds": 30.0,
    "grace_seconds": 30.0,
    "load_seconds": 1800.0,
    "lease_seconds": 300.0,
    "weight": 1.0,
}
_SECONDS = ("shard_seconds", "grace_seconds", "load_seconds")
_LOSSY = "int8"  # which a model has only where it is asked for
_SCHEMA_FILE = "schema.json"


def local_lines(job: dict[str, Any], on: str = "") -> list[str]:
    """With the model as the server had loaded it; none where that is not known yet. `on` is the option of the server.

    What the command cannot say is said beside it.
    """
    settings, loaded = job["settings"], (job["progress"] or {}).get("loaded")
    if loaded is None:
        return []
    words = ["twoshift", "run", *settings["inputs"], "--model", loaded["model"]]
    if loaded["precision"] == _LOSSY:
        words += ["--precision", _LOSSY]
    lines = [f"To go on here: {shlex.join([*words, *_words(settings, OPTIONS)])}"]
    if settings.get("json_schema") is not None:
        shown = f"twoshift jobs show {job['id']}{on} --json"
        lines.append(f"Save settings.json_schema of `{shown}` as {_SCHEMA_FILE} first.")
    if there := _words(settings, SERVER_OPTIONS):
        lines.append(f"Only a server has {shlex.join(there)}: `twoshift jobs resume {job['id']}{on}` keeps it.")
    lines += [f"Only a job file has {name} = {settings[name]}." for name in FILE_ONLY if _is_said(settings, name)]
    return lines


def _words(settings: dict[str, Any], options: dict[str, str]) -> list[str]:
    """The options of what was asked for."""
    words = list[str]()
    for name, option in options.items():
        if not _is_said(settings, name):
            continue
        values = settings[name] if name == "stop" else [_written(name, settings[name])]
        words += [word for value in values for word in (option, value)]
    return words


def _is_said(settings: dict[str, Any], name: str) -> bool:
    return settings.get(name) not in (None, [], {}, _DEFAULTS.get(name))


def _written(name: str, value: Any) -> str:
    if name == "json_schema":
        return _SCHEMA_FILE  # the option takes a file, which only who submitted the job has
    if isinstance(value, dict):
        return ",".join(f"{key}={each}" for key, each in value.items())
    if isinstance(value, list):
        return ",".join(value)
    return f"{value:g}s" if name in _SECONDS else str(value)
