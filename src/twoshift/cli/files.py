"""Files that a user names: read and written with errors that say what is wrong with them."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from twoshift.errors import InvalidInput, TooLarge, UnusableModel

__all__ = ["CLOSED_STDIN", "check_writable", "read_text", "write_text"]

_LIMIT_BYTES = 256 * 1024 * 1024
CLOSED_STDIN = "reads the standard input, which is closed; pipe rows in, or name a file"


def read_text(path: str, field: str, kind: str) -> str:
    """The file's text (`-`: standard input); `kind` says in an error what was expected."""
    try:
        if path == "-":
            if sys.stdin is None:
                raise UnusableModel(field, path, CLOSED_STDIN)
            data = sys.stdin.buffer.read(_LIMIT_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(_LIMIT_BYTES + 1)
    except InvalidInput:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UnusableModel(field, path, f"cannot be read ({reason}); expected {kind}") from None
    if len(data) > _LIMIT_BYTES:
        raise TooLarge(field, path, f"a file of at most {_LIMIT_BYTES // 2**20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidInput(field, path, f"{kind} in UTF-8; line {line} is not valid UTF-8") from None
    if "\0" in text:
        raise InvalidInput(field, path, f"{kind}; this file is binary")
    if not text.strip():
        raise InvalidInput(field, path, f"{kind}; this file is empty")
    return text


def check_writable(path: str | None, field: str, *, others: Sequence[str | None] = ()) -> None:
    """Fail before the work is done and not after it; `others` are files that this one must not overwrite."""
    if path is None:
        return
    try:
        target = Path(path).resolve()
        if path == "-" or path.endswith("/") or not target.name or (target.exists() and not target.is_file()):
            raise InvalidInput(field, path, "the name of a file to write")
        if not target.parent.is_dir():
            raise InvalidInput(field, path, f"a file in an existing folder; {target.parent} does not exist")
        if _is_device(Path(path), target):
            raise InvalidInput(field, path, "the name of a regular file, not of a device such as /dev/stdout")
        if any(other and Path(other).resolve() == target for other in others):
            raise InvalidInput(field, path, "another file; this command already reads or writes this file")
        if not os.access(target if target.exists() else target.parent, os.W_OK):
            raise InvalidInput(field, path, "a file that the current user has the permission to write")
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInput(field, path, f"a file that can be written ({reason})") from None


def _is_device(path: Path, target: Path) -> bool:
    # /dev/stdout leads to a plain file where stdout is redirected: replacing that would lose what was printed.
    ways = [path.absolute(), target, *([path.readlink()] if path.is_symlink() else [])]
    return any(str(way).startswith(("/dev/", "/proc/")) for way in ways)


def write_text(path: str, text: str, field: str) -> None:
    """Write the whole file or nothing of it; through a link, and with the permissions that it has."""
    target = Path(path).resolve()
    temporary: str | None = None
    try:
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:80]}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, mode)  # noqa: PTH101 - mkstemp makes it private, a report is not
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
