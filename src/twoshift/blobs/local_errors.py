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
    errno.ENOTDIR: "a path in which every parent is a folder",
    errno.EISDIR: "a file, not a folder",
    errno.ELOOP: "a path without circular symbolic links",
    errno.ENAMETOOLONG: "a shorter file name",
    errno.EACCES: "a path that the current user may access",
    errno.EPERM: "a path that the current user may access",
    errno.EROFS: "a folder on a writable filesystem",
    errno.EXDEV: "a temporary file on the same filesystem as the output",
}


@contextmanager
def explained(location: str) -> Iterator[None]:
    """Turns an OSError into InvalidInput, TryLater or Broken that names the location."""
    try:
        yield
    except OSError as error:
        where = str(error.filename or location)
        if error.errno in _FULL:
            raise TryLater(
                f"the disk is full, so {location} cannot be written: free some disk space", _FULL_RETRY_S
            ) from error
        if accepted := _ACCEPTED.get(error.errno or 0):
            raise InvalidInput("location", where, accepted) from error
        raise Broken(f"{where} cannot be used: {error.strerror or error}") from error
