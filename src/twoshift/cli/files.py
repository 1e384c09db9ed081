"""Files that a user names: read and written with errors that say what is wrong with them."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from twoshift.errors import InvalidInput, TooLarge

__all__ = ["check_writable", "read_text", "write_text"]

_LIMIT_BYTES = 256 * 1024 * 1024


def read_text(path: str, field: str, kind: str) -> str:
    """The file's text (`-`: standard input); `kind` says in an error what was expected."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(_LIMIT_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(_LIMIT_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInput(field, path, f"{kind} that can be read ({reason})") from None
    if len(data) > _LIMIT_BYTES:
        raise TooLarge(field, path, f"a file of at most {_LIMIT_BYTES // 2**20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidInput(field, path, f"{kind} in UTF-8 (line {line} is not)") from None
    if "\0" in text:
        raise InvalidInput(field, path, f"{kind}, and this is a binary one")
    if not text.strip():
        raise InvalidInput(field, path, f"{kind}, and this one is empty")
    return text


def check_writable(path: str | None, field: str) -> None:
    """Fail before the work is done and not after it."""
    if path is None:
        return
    target = Path(path)
    if not target.name or target.is_dir():
        raise InvalidInput(field, path, "the name of a file to write")
    if not target.parent.is_dir():
        raise InvalidInput(field, path, f"a file in a folder that exists ({target.parent} does not)")
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise InvalidInput(field, path, "a file that may be written")


def write_text(path: str, text: str, field: str) -> None:
    """Write the whole file or nothing of it."""
    target = Path(path)
    temporary: str | None = None
    try:
        if target.exists() and not target.is_file():  # a pipe or a device: /dev/stdout, say
            target.write_text(text, encoding="utf-8")
            return
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:80]}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~_umask())  # noqa: PTH101 - mkstemp makes it private, a report is not
        os.replace(temporary, target)  # noqa: PTH105
    except (OSError, ValueError) as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInput(field, path, f"a file that can be written ({reason})") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
