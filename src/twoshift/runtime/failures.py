"""What libraries raise when a device is full or gone, told apart from what a model raises."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from twoshift.errors import DeviceLost, OutOfMemory, TwoshiftError, first_line

__all__ = ["device_failure", "device_failures"]

_LIBRARIES = {"catboost", "lightgbm", "onnxruntime", "openvino", "sklearn", "torch", "xgboost"}
_FULL = re.compile(
    r"out of memory|OUT_OF_MEMORY|ALLOC_FAILED|bad_?\s?alloc|failed to allocate|cannot allocate memory"
    r"|memory allocation (error|fail)|is smaller than requested bytes|insufficient memory",
    re.IGNORECASE,
)
_LOST = re.compile(
    r"device-side assert|illegal memory access|misaligned address|unspecified launch failure|uncorrectable ECC"
    r"|illegal instruction was encountered|launch timed out|device (was )?(lost|removed|reset)|GPU is lost"
    r"|fallen off the bus|CUDA_ERROR_(?!OUT_OF_MEMORY)|driver shutting down",
    re.IGNORECASE,
)


def device_failure(error: BaseException) -> OutOfMemory | DeviceLost | None:
    """The error as OutOfMemory or DeviceLost, or None where it is the model's own."""
    if isinstance(error, MemoryError):
        return OutOfMemory(first_line(error) if str(error) else "the host is out of memory")
    kind = type(error)
    if not isinstance(error, RuntimeError) and kind.__module__.partition(".")[0] not in _LIBRARIES:
        return None  # a user's ValueError may say what it likes
    text = str(error)
    if kind.__name__ == "OutOfMemoryError" or _FULL.search(text):
        return OutOfMemory(first_line(error))
    if kind.__name__ == "DeviceReset" or _LOST.search(text):
        return DeviceLost(first_line(error))
    return None


@contextmanager
def device_failures() -> Iterator[None]:
    """Around a call to a library: its device failures leave as ours, everything else as it is."""
    try:
        yield
    except TwoshiftError:
        raise
    except Exception as error:
        failure = device_failure(error)
        if failure is None:
            raise
        raise failure from error
