"""An error is the same error wherever it arrives: every class, every attribute, every way between processes."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import msgspec
import pytest
from sample_errors import sample_errors

from twoshift import errors
from twoshift.batch.messages import Unusable
from twoshift.endpoints.faults import fault_of
from twoshift.endpoints.known import told_openai
from twoshift.error_codec import EncodedError, decode_error, encode_error
from twoshift.errors import InvalidInput, TryLater, TwoshiftError
from twoshift.fleet.control import LoadFailed
from twoshift.fleet.frames import Frames, framed
from twoshift.fleet.wire import Refused, from_replica

SAMPLES = [pytest.param(each, id=type(each).__name__) for each in sample_errors()]


def by_frames(error: BaseException) -> TwoshiftError:
    """To a front, from a replica process or one of Ray Serve."""
    (frame,) = Frames().feed(framed(Refused([7], encode_error(error))))
    found = from_replica(frame)
    assert isinstance(found, Refused)
    return decode_error(found.error)


def by_control_line(error: BaseException) -> TwoshiftError:
    """A replica that cannot start; multiprocessing and Ray pickle it."""
    return decode_error(pickle.loads(pickle.dumps(LoadFailed(encode_error(error)))).error)  # noqa: S301 - our own


def by_job_message(error: TwoshiftError) -> TwoshiftError:
    """A job's worker that can do nothing, to its coordinator."""
    return pickle.loads(pickle.dumps(Unusable(error))).error  # noqa: S301 - our own


def by_pickle(error: BaseException) -> Any:
    """As Ray and process pools carry what a function raises."""
    return pickle.loads(pickle.dumps(error))  # noqa: S301 - our own


WAYS = [by_frames, by_control_line, by_job_message, by_pickle, copy.copy]


@pytest.mark.parametrize("error", SAMPLES)
@pytest.mark.parametrize("way", WAYS)
def test_every_error_arrives_with_every_attribute(error: TwoshiftError, way: Any) -> None:
    again = way(error)
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
    assert again.client_message == error.client_message
    assert fault_of(again) == fault_of(error)


def test_an_attribute_that_is_added_crosses_without_a_change_to_the_codec() -> None:
    error = TryLater("full", 1.0)
    error.shard = 12  # type: ignore[attr-defined]
    assert vars(by_frames(error)) == {"retry_after_s": 1.0, "for_clients": "", "shard": 12}


@pytest.mark.parametrize("value", [object(), [1, {"a": (2, 3)}], 1 << 80, b"\xff", "\ud800"])
def test_a_value_that_cannot_cross_is_shown(value: object) -> None:
    error = InvalidInput("input", value, "a text")
    again = by_frames(error)
    assert isinstance(again, InvalidInput)
    assert str(again) == str(error).encode(errors="backslashreplace").decode()
    if value != "\ud800":
        assert repr(again.value) == repr(value)
        assert str(again.renamed("x")) == str(error.renamed("x"))


def test_a_class_from_elsewhere_arrives_as_the_nearest_one_of_ours() -> None:
    class FolderTaken(InvalidInput):
        pass

    assert type(by_frames(FolderTaken("output", "out", "another folder"))) is InvalidInput


def test_what_a_model_raises_keeps_its_name_and_words() -> None:
    error = ArithmeticError("this row \ud800 is bad")
    error.add_note("row 3 of 5")
    again = by_frames(error)
    assert again.__notes__ == ["row 3 of 5"]
    assert type(again).__name__ == "ArithmeticError"
    assert str(again) == "this row \\ud800 is bad"


def test_a_models_error_with_a_name_of_ours_is_the_models() -> None:
    class NotFound(Exception):
        pass

    again = by_frames(NotFound("no such user"))
    assert not isinstance(again, errors.NotFound)
    assert type(again).__name__ == "NotFound"
    assert fault_of(again).status == 500


def test_an_error_that_cannot_even_say_what_it_is_is_told_all_the_same() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert "Mute: the error has no readable message" in fault_of(by_frames(Mute())).message
    assert "Mute: the error has no readable message" in fault_of(Mute()).message


@pytest.mark.parametrize("error", SAMPLES)
def test_every_error_has_a_reply_that_says_when_to_come_back(error: TwoshiftError) -> None:
    fault = fault_of(by_frames(error))
    told = json.loads(told_openai(fault))["error"]
    assert error.client_message in told["message"]
    assert (fault.status == 503 or fault.status == 429) == (fault.retry_after_s is not None)
    assert told["param"] == getattr(error, "field", None)
    assert "/srv/x" not in told["message"]  # what is not the client's to know


@pytest.mark.parametrize("error", SAMPLES)
def test_a_field_is_renamed_after_its_way_as_before_it(error: TwoshiftError) -> None:
    if isinstance(error, InvalidInput):
        again = by_frames(error)
        assert isinstance(again, InvalidInput)
        assert str(again.renamed("messages")) == str(error.renamed("messages"))
        assert vars(again.renamed("messages")) == {**vars(error), "field": "messages"}


def test_an_encoded_error_is_plain() -> None:
    assert msgspec.msgpack.decode(
        msgspec.msgpack.encode(encode_error(TryLater("full", 0.5))), type=EncodedError
    ) == EncodedError("TryLater", "full; try again in 500 ms", {"retry_after_s": 0.5, "for_clients": ""})
