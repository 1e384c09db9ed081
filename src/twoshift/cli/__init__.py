"""The program: `twoshift`. The one place where errors become exit codes.

0    done
1    something is damaged
2    bad usage, bad input or a key that may not: the message says what is accepted
75   try again later
130  interrupted
141  the reader of our output went away, as with SIGPIPE
"""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from twoshift._version import __version__
from twoshift.cli.app import app
from twoshift.errors import BrokenModel, Denied, InvalidInput, TryLater, TwoshiftError
from twoshift.extras import extra_with, not_installed
from twoshift.logs import log_note, writes_json

__all__ = ["main", "parser"]

_CLOSED_PIPE = 141  # as a program that SIGPIPE ends

# The modules behind the first word of a command line, in the order of the help: only these are imported for it
_GROUPS = {
    "batch": ("batch",),
    "jobs": ("jobs",),
    "models": ("models", "registry", "registry_changes"),
    "plan": ("plan",),
    "rollouts": ("rollouts",),
    "schedule": ("schedule",),
    "sim": ("sim",),
    "streams": ("streams",),
}
_ALONE = (
    "embed", "key", "load", "profile", "quickstart", "run", "score", "search", "serve", "stream", "usage", "verify",
)  # fmt: skip
_COMMANDS = {name: (name,) for name in _ALONE} | {"deploy": ("rollouts",)}


def _print_version(asked: bool) -> None:
    if asked:
        print(f"twoshift {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    pass  # the option's callback does the work, before a command is asked for


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises for what a user did."""
    _prepare_streams()
    try:
        code = _run(sys.argv[1:] if argv is None else list(argv))
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
        return _CLOSED_PIPE
    except OSError as error:  # a full disk, a device gone
        _forget_stdout()
        return _fail(str(error), 1)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    return code


def _run(argv: list[str]) -> int:
    try:
        result: Any = parser(*argv[:1])(argv, prog_name="twoshift", standalone_mode=False)
    except InvalidInput as error:
        return _fail(str(error), 2)
    except TryLater as error:
        return _fail(str(error), 75)
    except (BrokenModel, Denied) as error:
        return _fail(str(error), 2)
    except TwoshiftError as error:
        return _fail(str(error), 1)
    except typer.Abort:
        return _fail("interrupted", 130)
    except ModuleNotFoundError as error:
        return _not_installed(error)
    except SystemExit as error:  # how typer reports a closed pipe, with 1
        _forget_stdout()
        return error.code if isinstance(error.code, int) and error.code != 1 else _CLOSED_PIPE
    except Exception as error:
        return _usage_error(error)
    return result if isinstance(result, int) else 0


@functools.cache
def parser(first: str = "") -> Any:
    """What reads a command line that begins with this word; of all commands where it is none of their names."""
    known = _COMMANDS | _GROUPS
    wanted = {first: known[first]} if first in known else {} if first == "--version" else known
    modules = {name: [import_module(f"{__name__}.{each}") for each in of] for name, of in wanted.items()}
    program = copy.copy(app)
    declared = {each.name: each for each in app.registered_commands}
    program.registered_commands = [declared[name] for name in _COMMANDS if name in wanted]
    program.registered_groups = []
    for name in _GROUPS:
        if name in wanted:
            program.add_typer(modules[name][0].app, name=name)
    return typer.main.get_command(program)


def _not_installed(error: ModuleNotFoundError) -> int:
    extra = extra_with(error.name or "")
    if extra is None:
        raise error
    return _fail(str(not_installed(extra, "command", "this", also=error.name or "")), 2)


def _usage_error(error: Exception) -> int:
    """The parser's own errors, told by what they carry: their class has moved between versions of typer."""
    describe = getattr(error, "format_message", None)
    if describe is None:
        raise error
    message = describe()
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", None)
    if message:
        _fail(message, 2)
        if path:
            _fail(f"Try '{path} --help'.", 2)
    return 2


def _fail(message: str, code: int) -> int:
    if writes_json():
        log_note(message, logging.ERROR)
        return code
    with contextlib.suppress(OSError):
        print(f"twoshift: {message}", file=sys.stderr, flush=True)
    return code


def _prepare_streams() -> None:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller: `>&-`
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
    if not os.environ.get("COLUMNS", "1").strip().lstrip("0"):
        del os.environ["COLUMNS"]  # a terminal of no width would show nothing
    # A file name that is not valid UTF-8, or a terminal that is not UTF-8, must not end in a traceback.
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _forget_stdout() -> None:
    # The interpreter flushes stdout once more at exit; let that go nowhere instead of failing aloud.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
