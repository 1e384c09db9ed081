"""A server's job as the command that goes on with it here."""

from __future__ import annotations

import shlex
from typing import Any

from twoshift.batch.setting_values import Mark
from twoshift.batch.settings import JobSettings
from twoshift.declare import Declared, declared, differing

__all__ = ["local_lines"]

_LOSSY = ("int8", "fp8")  # which a model has only where it is asked for
_SCHEMA_FILE = "schema.json"
_OF_THE_SERVER = {Mark.HERE, Mark.BATCH}  # how its model is loaded, on how many replicas; and what only batches have


def local_lines(job: dict[str, Any], on: str = "") -> list[str]:
    """With the model as the server had loaded it; none where that is not known yet. `on` is the option of the server.

    What the command cannot say is said beside it.
    """
    settings, loaded = job["settings"], (job["progress"] or {}).get("loaded")
    if loaded is None:
        return []
    said = [declared(JobSettings)[name] for name in differing(JobSettings, settings) if name != "model"]
    said = [each for each in said if not _OF_THE_SERVER.intersection(each.marks)]
    words = ["twoshift", "run", *settings["inputs"], "--model", loaded["model"]]
    if loaded["precision"] in _LOSSY:
        words += ["--precision", loaded["precision"]]
    if "adapter" in loaded:
        words += ["--adapter", loaded["adapter"]]
    words += [word for each in said if Mark.SERVER not in each.marks for word in _words(each, settings)]
    lines = [f"To resume the job on this machine: {shlex.join(words)}"]
    if settings.get("json_schema") is not None:
        shown = f"twoshift jobs show {job['id']}{on} --json"
        lines.append(f"First save `settings.json_schema` from the output of `{shown}` as the file {_SCHEMA_FILE}.")
    if there := [word for each in said if Mark.SERVER in each.marks for word in _words(each, settings)]:
        kept = (
            f" `twoshift jobs resume {job['id']}{on}` keeps these options." if job.get("state") != "cancelled" else ""
        )
        lines.append(f"These options apply only on a server: {shlex.join(there)}.{kept}")
    file_only = [each.name for each in said if not each.setting.has_option]
    return lines + [
        f"The setting {name} has no option; write it into a job file: {name} = {settings[name]}" for name in file_only
    ]


def _words(each: Declared, settings: dict[str, Any]) -> list[str]:
    """The option of a setting; none where it has none."""
    if not each.has_option:
        return []
    kind, value = each.setting.value, settings[each.name]
    if each.name == "json_schema":
        value = _SCHEMA_FILE  # the option takes a file, which only who submitted the job has
    return [word for part in (value if kind.repeats else [value]) for word in (each.flags[0], kind.write(part))]
