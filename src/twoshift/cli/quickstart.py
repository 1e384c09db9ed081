"""`quickstart`: sample data and models in a folder, to try everything else with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twoshift.cli.app import app
from twoshift.cli.commands import command
from twoshift.cli.files import write_text
from twoshift.cli.output import show, table
from twoshift.cli.params import JsonFlag
from twoshift.errors import InvalidInput
from twoshift.quickstart import FILES, read_sample

__all__ = ["quickstart_command"]


@command(app, "quickstart", "twoshift quickstart tickets/")
def quickstart_command(
    folder: Annotated[str, typer.Argument(help="Folder to write into, created if it does not exist.")] = "quickstart",
    as_json: JsonFlag = False,
) -> None:
    """Write sample data, two small models and configuration files into a folder.

    If the folder contains a sample file that you changed, the command writes nothing.
    """
    target = Path(folder)
    texts = {name: read_sample(name) for name in FILES}
    _check(folder, texts)
    for name, text in texts.items():
        write_text(str(target / name), text, "FOLDER")
    rows = [(name, about) for name, about in FILES.items()]
    first = f"cd {folder} && twoshift score tickets.py:Urgency tickets.jsonl"
    show(as_json, {"folder": folder, "files": [*FILES]}, table(("<<file", "<content"), rows, f"Written to {folder}"),
         f"Try: {first}")  # fmt: skip


def _check(folder: str, texts: dict[str, str]) -> None:
    """Make the folder; raises InvalidInput where a file in it would be overwritten, before any is written."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        changed = [name for name, text in texts.items() if _differs(Path(folder) / name, text.encode())]
    except OSError as error:
        raise InvalidInput("FOLDER", folder, f"a folder that can be written ({error.strerror})") from None
    if changed:
        raise InvalidInput(
            "FOLDER", folder, f"another folder; in this folder, these sample files were changed: {', '.join(changed)}"
        )


def _differs(path: Path, data: bytes) -> bool:
    return path.exists() and path.read_bytes() != data
