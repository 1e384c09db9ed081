"""A model is loaded once in a process of its own: what it does to that process it does to nobody else."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import NamedTuple

import msgspec

from twoshift.decodable import decodable
from twoshift.durations import format_duration
from twoshift.error_codec import EncodedError, decode_error, encode_error
from twoshift.errors import UnusableModel
from twoshift.parent_process import end_with, how_ended, name_process
from twoshift.wiring.model_loading import load_model

__all__ = ["LoadedFacts", "loaded_alone", "loaded_here", "main"]

_PROGRAM = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from twoshift.wiring.trial_load import main; main(json.loads(sys.argv[2]))"
)


class LoadedFacts(NamedTuple):
    """What is known of a model once it was loaded."""

    runtime: str
    outputs: tuple[str, ...]
    checksum: str


@decodable
class _Told(msgspec.Struct):
    """What the process says at its end."""

    facts: LoadedFacts | None = None
    error: EncodedError | None = None


def loaded_here(word: str, trust_pickle: bool) -> LoadedFacts:
    """Load the model and let it go; raises what loading raises."""
    runtime = load_model(word, trust_pickle=trust_pickle, device="cpu")
    runtime.close()
    return LoadedFacts(runtime.info.runtime, runtime.info.outputs, runtime.info.checksum)


def loaded_alone(word: str, trust_pickle: bool, limit_s: float) -> LoadedFacts:
    """The same in a process of its own; raises UnusableModel where that ends, or has not loaded it in time."""
    reads, writes = os.pipe()
    with open(reads, "rb") as told:  # noqa: PTH123 - a descriptor
        try:
            given = json.dumps({"word": word, "trust_pickle": trust_pickle, "line": writes, "parent": os.getpid()})
            process = subprocess.Popen(  # noqa: S603 - a program of our own
                [sys.executable, "-c", _PROGRAM, json.dumps(sys.path), given],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what is printed must not get between the lines of --json
                pass_fds=(writes,),
            )
        finally:
            os.close(writes)
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            limit = format_duration(limit_s)
            accepted = f"did not load within {limit}: set a longer --load-timeout, or repair the model"
            raise UnusableModel("model", word, accepted) from None
        finally:
            process.kill()
            process.wait()
        return _heard(word, told.read(), code)


def _heard(word: str, data: bytes, code: int) -> LoadedFacts:
    try:
        told = msgspec.json.decode(data, type=_Told)
    except msgspec.DecodeError:
        accepted = f"ended the process that loaded the model: the process {how_ended(code)}; a server would end, too"
        raise UnusableModel("model", word, accepted) from None
    if told.error is not None:
        raise decode_error(told.error)
    assert told.facts is not None  # noqa: S101 - one of the two
    return told.facts


def main(given: dict[str, object]) -> None:
    """The process."""
    end_with(int(str(given["parent"])))
    name_process("twoshift-check")
    try:
        told = _Told(loaded_here(str(given["word"]), bool(given["trust_pickle"])))
    except Exception as error:  # a model's own code may raise anything
        told = _Told(error=encode_error(error))
    with contextlib.suppress(OSError), open(int(str(given["line"])), "wb") as line:  # noqa: PTH123 - a descriptor
        line.write(msgspec.json.encode(told))
    sys.stderr.flush()
    os._exit(0)  # threads of a library may not end
