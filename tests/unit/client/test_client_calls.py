"""What a client sends again, and what it makes of refusals: no server, no clock."""

from __future__ import annotations

import json
from typing import Any

import pytest

from twoshift.client.calls import ApiCall, ApiReply, Lost, Pause, json_call, steps
from twoshift.client.requests import read_chunk, wait_job
from twoshift.errors import Broken, Denied, Late, NotFound, OverLimit, TooLarge, TooLong, TryLater, TwoshiftError

GET = json_call("GET", "/v1/models", lambda found: found)
SUBMIT = json_call("POST", "/v1/jobs", lambda found: found, {}, repeatable=False)
OK = ApiReply(200, {}, b'{"a": 1}')


def refusal(status: int, code: str = "", **headers: str) -> ApiReply:
    told = {"message": "so", "type": code, "param": "input", "code": code}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ApiReply(status, named, json.dumps({"error": told}).encode())


def played(work: Any, answers: list[ApiReply | Lost], most: int = 2) -> tuple[Any, list[float]]:
    """What comes of it, and the pauses on the way."""
    flow, answer, pauses, left = steps(work, most), None, list[float](), iter(answers)
    while True:
        try:
            step = flow.send(answer)
        except StopIteration as end:
            assert next(left, None) is None
            return end.value, pauses
        except TwoshiftError as error:
            assert next(left, None) is None
            return error, pauses
        if isinstance(step, Pause):
            pauses.append(step.seconds)
            answer = None
        else:
            assert isinstance(step, ApiCall)
            answer = next(left)


def test_an_overloaded_server_is_asked_again_after_the_time_that_it_says() -> None:
    found, pauses = played(GET, [refusal(503, retry_after_ms="30000"), refusal(429, retry_after="40"), OK])
    assert found == {"a": 1}
    assert pauses == [30.0, 40.0]


def test_after_so_many_retries_the_refusal_is_raised() -> None:
    error, pauses = played(GET, [refusal(503, retry_after_ms="20")] * 3)
    assert type(error) is TryLater
    assert error.retry_after_s == pytest.approx(0.02)
    assert len(pauses) == 2


def test_what_the_server_says_is_never_worth_it_is_not_repeated() -> None:
    error, pauses = played(GET, [refusal(503, x_should_retry="false")])
    assert (type(error), pauses) == (TryLater, [])


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "context_length_exceeded", TooLong),
        (401, "", Denied),
        (404, "", NotFound),
        (413, "", TooLarge),
        (429, "", OverLimit),
        (500, "", Broken),
        (504, "", Late),
    ],
)
def test_a_refusal_has_the_class_of_its_status(status: int, code: str, kind: type[TwoshiftError]) -> None:
    error, _ = played(GET, [refusal(status, code)], most=0)
    assert type(error) is kind
    assert str(error) == "so"


def test_a_refusal_without_json_is_told_by_its_status() -> None:
    error, _ = played(GET, [ApiReply(502, {}, b"<html>")])
    assert isinstance(error, Broken)
    assert "502" in str(error)


def test_a_lost_connection_is_repeated_unless_that_could_submit_twice() -> None:
    lost, refused = Lost(OSError("reset"), sent=True), Lost(OSError("refused"), sent=False)
    assert played(GET, [lost, OK])[0] == {"a": 1}
    assert played(SUBMIT, [refused, OK])[0] == {"a": 1}
    assert isinstance(played(SUBMIT, [lost])[0], TryLater)


def job(state: str) -> ApiReply:
    return ApiReply(200, {}, json.dumps({"id": "job_1", "state": state, "newer": 1}).encode())


def test_waiting_for_a_job_survives_a_restart_of_its_server() -> None:
    restart: list[ApiReply | Lost] = [Lost(OSError("refused"), sent=False)] * 10
    found, _ = played(wait_job("job_1"), [job("running"), *restart, job("done")], most=0)
    assert found.state == "done"
    assert found.share == 1.0


def test_waiting_ends_with_its_time() -> None:
    error, pauses = played(wait_job("job_1", timeout_s=1.0, poll_s=0.5), [job("running")] * 3)
    assert isinstance(error, Late)
    assert pauses == [0.5, 0.5]


def test_an_error_in_a_stream_is_raised() -> None:
    assert read_chunk(": comment") is None
    assert read_chunk("data: [DONE]") is None
    with pytest.raises(TryLater, match="full"):
        read_chunk('data: {"error": {"message": "full", "code": "overloaded"}}')
