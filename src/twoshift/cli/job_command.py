"""A server's job as the command that goes on with it here."""

from __future__ import annotations

import shlex
from typing import Any

__all__ = ["local_command"]

_OPTIONS = {
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
    "keep": "--keep",
    "input_format": "--input-format",
    "output_format": "--output-format",
    "shard_rows": "--shard-rows",
    "shard_seconds": "--shard-seconds",
    "max_errors": "--max-errors",
    "window": "--window",
    "price_usd_per_hour": "--price",
}
_DEFAULTS = {"output_format": "parquet", "shard_seconds": 30.0, "max_tokens": 256, "temperature": 0.0, "top_p": 1.0}
_LOSSY = "int8"  # which a model has only where it is asked for


def local_command(job: dict[str, Any]) -> str | None:
    """With the model as the server had loaded it; None where that is not known yet."""
    settings, loaded = job["settings"], (job["progress"] or {}).get("loaded")
    if loaded is None:
        return None
    words = ["twoshift", "run", *settings["inputs"], "--model", loaded["model"]]
    if loaded["precision"] == _LOSSY:
        words += ["--precision", _LOSSY]
    for name, option in _OPTIONS.items():
        value = settings.get(name)
        if value not in (None, [], {}, _DEFAULTS.get(name)):
            words += [option, _written(value)]
    for word in settings.get("stop") or ():
        words += ["--stop", word]
    if settings.get("json_schema") is not None:
        return None  # the option takes a file, which only who submitted the job has
    return shlex.join([*words, "-o", settings["output"]])


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={each}" for name, each in value.items())
    return ",".join(value) if isinstance(value, list) else str(value)
