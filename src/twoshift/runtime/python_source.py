"""The user's own class, found in a file or a module; mistakes are shown with the user's own line."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from twoshift.errors import Inapplicable, InvalidInput, TwoshiftError
from twoshift.runtime.artifacts import checksum_of_bytes, full_file
from twoshift.runtime.failures import device_failure

__all__ = [
    "UserExit",
    "call_user",
    "class_names",
    "contained",
    "existing_source",
    "is_from_terminal",
    "is_python_model",
    "load_class",
    "load_function",
    "user_place",
]

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def is_python_model(model: str) -> bool:
    """Whether this names a class: `path/to/file.py:Class` or `package.module:Class`."""
    source, colon, name = model.rpartition(":")
    return bool(colon) and name.isidentifier() and (source.endswith(".py") or bool(_MODULE.fullmatch(source)))


def load_class(model: str) -> tuple[type, str]:
    """The class that `model` names, and the checksum of its source file."""
    source, _, name = model.rpartition(":")
    if source.endswith(".py"):
        path = full_file(existing_source(Path(source).expanduser(), model)).resolve()
        module, data = _import_file(path, model), path.read_bytes()
    else:
        module = _import_module(source, model)
        data = _source_bytes(module, model)
    found = getattr(module, name, None)
    if not inspect.isclass(found):
        raise InvalidInput("model", model, _class_hint(module, name, source))
    return found, checksum_of_bytes(data)


def load_function(named: str, field: str) -> tuple[Any, str]:
    """The function that `file.py:function` names, and the checksum of its source file; raises InvalidInput."""
    source, _, name = named.rpartition(":")
    try:
        path = full_file(existing_source(Path(source).expanduser(), named)).resolve()
        found = getattr(_import_file(path, named), name, None)
    except InvalidInput as error:
        raise error.renamed(field) from None
    if not callable(found):
        raise InvalidInput(field, named, f"a function that {source} defines")
    return found, checksum_of_bytes(path.read_bytes())


def class_names(module: ModuleType) -> list[str]:
    """The classes that a module defines itself."""
    return sorted(
        name for name, value in vars(module).items() if inspect.isclass(value) and value.__module__ == module.__name__
    )


def call_user(model: str, doing: str, function: Any, *arguments: Any) -> Any:
    """Call the user's code; what it raises, sys.exit too, becomes InvalidInput with the user's own file and line."""
    try:
        return function(*arguments)
    except TwoshiftError:
        raise
    except BaseException as error:
        if is_from_terminal(error):
            raise
        failure = device_failure(error)
        if failure is not None:
            raise failure from error
        raise Inapplicable("model", model, f"because its code could not {doing}: {_user_line(error)}") from error


class contained:  # noqa: N801 - used as a function; a class, since every live row passes through it
    """Around the user's code: what would end the program, such as sys.exit, is an exception like any other."""

    __slots__ = ("_doing", "_model")

    def __init__(self, model: str, doing: str) -> None:
        self._model, self._doing = model, doing

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is not None and not isinstance(error, Exception) and not is_from_terminal(error):
            raise UserExit(f"{self._model} could not {self._doing}: {_user_line(error)}") from error


class UserExit(Exception):
    """A user's code has raised SystemExit, KeyboardInterrupt or the like in a call."""


def is_from_terminal(error: BaseException) -> bool:
    """Whether it is Ctrl-C: Python raises that in the main thread, unless the program handles the signal itself."""
    return (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


class _FreshSource(SourceFileLoader):
    """Compiles what the file holds now: no stale bytecode, and none written beside the user's file."""

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _import_file(path: Path, model: str) -> ModuleType:
    _findable(path.parent)
    name = f"twoshift_model_{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}"
    module = importlib.util.module_from_spec(ModuleSpec(name, _FreshSource(name, str(path)), origin=str(path)))
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up by name
    loader = module.__spec__.loader if module.__spec__ else None
    if loader is None:
        raise AssertionError(path)
    call_user(model, "be imported", loader.exec_module, module)
    return module


def _import_module(source: str, model: str) -> ModuleType:
    _findable(Path.cwd())
    try:
        return call_user(model, "be imported", importlib.import_module, source)
    except InvalidInput as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and cause.name and f"{source}.".startswith(f"{cause.name}."):
            accepted = f"a module that Python can import; {cause.name!r} is neither in this folder nor installed"
            raise InvalidInput("model", model, accepted) from None
        raise


def _findable(folder: Path) -> None:
    """Let the user's modules find their neighbours; last in the path, so that they hide nothing."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _source_bytes(module: ModuleType, model: str) -> bytes:
    file = module.__file__
    if not file or not Path(file).is_file():
        raise InvalidInput("model", model, "a Python module that has a source file (.py)")
    return Path(file).read_bytes()


def existing_source(path: Path, model: str) -> Path:
    """The file of a user's class; raises InvalidInput where there is none."""
    if path.exists():
        return path
    near = difflib.get_close_matches(path.name, _python_files(path.parent), 1)
    hint = f"; did you mean {path.parent / near[0]}?" if near else f" (looked in {path.parent.absolute()})"
    raise InvalidInput("model", model, f"a Python file that exists{hint}")


def _python_files(folder: Path) -> list[str]:
    try:
        return [file.name for file in folder.glob("*.py")]
    except OSError:
        return []


def _class_hint(module: ModuleType, name: str, source: str) -> str:
    known = class_names(module)
    near = difflib.get_close_matches(name, known, 1)
    if near:
        return f"a class of {source}; did you mean {near[0]}?"
    return f"a class of {source}, which defines {', '.join(known) if known else 'no class'}"


def _user_line(error: BaseException) -> str:
    """`file:line: Error: message` of the innermost line outside installed packages and ourselves."""
    what = traceback.format_exception_only(error)[-1].strip()
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: {what}"
    place = user_place(error)
    return f"{place}: {what}" if place else what


def user_place(error: BaseException) -> str:
    """`file:line` of the innermost line outside installed packages and ourselves; empty where there is none."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""


def _is_users(filename: str) -> bool:
    inside: Sequence[str] = (str(Path(__file__).parents[1]), str(Path(os.__file__).parent), "<frozen")
    return not any(filename.startswith(prefix) for prefix in inside) and "site-packages" not in filename
