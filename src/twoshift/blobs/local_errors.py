"""What the operating system says, by what the user should do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from twoshift.errors import Broken, InvalidInput, TryLater

__all__ = ["explained"]

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_RETRY_S = 60.0
_ACCEPTED = {
    errno.ENOENT: "a file or folder that exists",
    errno.ENOTDIR: "a path on which everything but the end is a folder",
    errno.EISDIR: "a file, not a folder",
    errno.ELOOP: "a path whose links lead somewhere",
    errno.ENAMETOOLONG: "a shorter name",
    errno.EACCES: "a path that this user may use",
    errno.EPERM: "a path that this user may use",
    errno.EROFS: "a folder that can be written to",
    errno.EXDEV: "a file that was staged on the same filesystem",
}


@contextmanager
def explained(location: str) -> Iterator[None]:
    """Turns an OSError into InvalidInput, TryLater or Broken that names the location."""
    try:
        yield
    except OSError as error:
        where = str(error.filename or location)
        if error.errno in _FULL:
            raise TryLater(f"no space is left for {location}: free disk space", _FULL_RETRY_S) from error
        if accepted := _ACCEPTED.get(error.errno or 0):
            raise InvalidInput("location", where, accepted) from error
        raise Broken(f"{where} cannot be used: {error.strerror or error}") from error
