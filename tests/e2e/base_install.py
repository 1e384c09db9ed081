"""The command line as a base install has it: run with verbs on stdin, a line of JSON each; answers the same way.

Every module of a package that the base install does not bring is hidden, whatever else is installed here.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import traceback
from importlib import metadata
from typing import Any


def _base_packages() -> set[str]:
    """Twoshift, its dependencies and theirs, by the names that packages_distributions has."""
    found, todo = set[str](), ["twoshift"]
    while todo:
        name = todo.pop()
        if _plain(name) in found:
            continue
        found.add(_plain(name))
        with contextlib.suppress(metadata.PackageNotFoundError):
            lines = metadata.requires(name) or []
            todo += [re.split(r"[^A-Za-z0-9_.-]", each)[0] for each in lines if "extra ==" not in each]
    return found


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


class _Without:
    """A finder that does not see some modules."""

    def __init__(self, finder: Any, hidden: set[str]) -> None:
        self._finder = finder
        self._hidden = hidden

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return None if name.partition(".")[0] in self._hidden else self._finder.find_spec(name, path, target)


def _answer(argv: list[str]) -> dict[str, object]:
    from twoshift.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(argv)
        except BaseException:
            code = 1
            traceback.print_exc()
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


if __name__ == "__main__":
    ours = _base_packages()
    installed = metadata.packages_distributions().items()
    hidden = {module for module, names in installed if not {_plain(name) for name in names} & ours}
    sys.meta_path[:] = [_Without(each, hidden - set(sys.stdlib_module_names)) for each in sys.meta_path]
    from twoshift import extras

    extras.installed_from = lambda: None  # pyright: ignore[reportAttributeAccessIssue] - however this one is installed
    for line in sys.stdin.read().splitlines():
        print(json.dumps(_answer(json.loads(line))), flush=True)
