"""One error of every class of twoshift.errors; a class that is added there and has no sample here fails the tests."""

from __future__ import annotations

import inspect

from twoshift import errors
from twoshift.errors import TwoshiftError

__all__ = ["error_classes", "sample_errors"]

_MADE: dict[str, TwoshiftError] = {
    "InvalidInput": errors.InvalidInput("input", 3, "a text"),
    "Malformed": errors.Malformed("body", "UTF-8"),
    "UnusableRows": errors.UnusableRows("inputs", 64, "in.csv, row 3: the text is null"),
    "UnusableModel": errors.UnusableModel("model", "a.bin", "is an adapter; merge it"),
    "Inapplicable": errors.Inapplicable("index_key", "id", "without --index"),
    "WrongState": errors.WrongState("job", "completed", "it cannot be paused any more"),
    "NotInstalled": errors.NotInstalled("model", "a.onnx", "the package onnx"),
    "Disabled": errors.Disabled("jobs", "install twoshift[fleet]"),
    "TooLarge": errors.TooLarge("input[0]", "it", "less"),
    "TooLong": errors.TooLong("prompt", "9 tokens", "at most 8"),
    "NotFound": errors.NotFound("model", "n", "one of m"),
    "TryLater": errors.TryLater("the disk /srv/x is full", 0.125, "the server is full"),
    "Asleep": errors.Asleep("the model is asleep", 2.5),
    "OverLimit": errors.OverLimit("the key alice is over its limit", 2.5),
    "Elsewhere": errors.Elsewhere("the server vm runs the jobs of sqlite:////srv/x.db", 5.0),
    "Late": errors.Late("it was not begun", begun=False),
}


def error_classes() -> list[type[TwoshiftError]]:
    """Every class that twoshift.errors defines."""
    found = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, TwoshiftError)]
    assert len(found) > 15
    return found


def sample_errors() -> list[TwoshiftError]:
    """With every attribute that the classes have, and a note each, as the row that failed has one."""
    made = list[TwoshiftError]()
    for kind in error_classes():
        error = _MADE.get(kind.__name__) or kind("what happened")
        assert type(error) is kind
        error.__notes__ = ["row 3 of 5"]
        made.append(error)
    return made
