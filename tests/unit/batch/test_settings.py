"""What a job is asked to do: read once, and what cannot be used is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from twoshift.batch.settings import ErrorBudget, JobSettings, make_settings, read_settings
from twoshift.errors import InvalidInput

LEAST: dict[str, Any] = {"inputs": ["in"], "output": "out", "model": "m"}


def test_one_input_may_be_written_as_a_string() -> None:
    assert make_settings({**LEAST, "inputs": "docs/*.parquet"}).inputs == ("docs/*.parquet",)


@pytest.mark.parametrize("name", ["keep", "columns"])
def test_one_column_may_be_written_as_a_string(name: str) -> None:
    assert getattr(make_settings({**LEAST, name: "id"}), name) == ("id",)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"inputs": []}, "inputs"),
        ({"workers": 0}, "workers"),
        ({"shard_rows": 0}, "shard_rows"),
        ({"shard_seconds": 0.0}, "shard_seconds"),
        ({"grace_seconds": -1.0}, "grace_seconds"),
        ({"lease_seconds": 0.0}, "lease_seconds"),
        ({"output_format": "xml"}, "output_format"),
        ({"pair": "b"}, "pair"),
        ({"text": "a", "columns": ["b"]}, "columns"),
        ({"keep": ["a", "a"]}, "keep"),
        ({"max_errors": "many"}, "max_errors"),
        ({"window": "2 moons"}, "window"),
        ({"window": "0s"}, "window"),
    ],
)
def test_what_cannot_be_used_is_named(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        make_settings({**LEAST, **given})
    assert caught.value.field == field


def test_a_value_of_the_wrong_type_is_named() -> None:
    with pytest.raises(
        InvalidInput, match=r"^workers: 'two' cannot be used; expected a whole number from 1 to 1,024, or auto$"
    ):
        make_settings({**LEAST, "workers": "two"})


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("shard_row", "shard_rows"),
        ("grace", "grace_seconds"),
        ("price", "price_usd_per_hour"),
        ("output_folder", "output"),
        ("shard_size", "shard_"),
        ("wrokers", "workers"),
        ("load_timeout", "load_seconds"),  # as its option is called
        ("qqq", "inputs, output, model"),
    ],
)
def test_an_unknown_key_names_the_nearest(key: str, nearest: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^{key}: .* such as {nearest}"):
        make_settings({**LEAST, key: 5})


def test_options_go_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('inputs = "a"\noutput = "b"\nmodel = "m"\nworkers = 2\nwindow = "2h"\n')
    settings = read_settings(path, {"workers": 3})
    assert (settings.workers, settings.window_s, settings.inputs) == (3, 7200.0, ("a",))


@pytest.mark.parametrize("text", ["inputs = [", "\x00"])
def test_a_file_that_is_no_toml_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(InvalidInput, match="TOML"):
        read_settings(tmp_path / "job.toml", {})
    with pytest.raises(InvalidInput, match="can be read"):
        read_settings(tmp_path / "none.toml", {})


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        ({"text": "t", "keep": ("id", "t")}, ("t", "id")),
        ({"text": "a", "pair": "b"}, ("a", "b")),
        ({"columns": ("x",), "keep": ("id",)}, ("x", "id")),
        ({"keep": ("id",)}, None),
    ],
)
def test_only_the_columns_that_are_needed_are_read(given: dict[str, Any], columns: tuple[str, ...] | None) -> None:
    settings = JobSettings(inputs=("in",), output="out", model="m", **given)
    assert settings.read_columns == columns


@pytest.mark.parametrize(
    ("given", "errors", "rows", "spent"),
    [
        ("0", 0, 10, False),
        ("0", 1, 10, True),
        ("100", 100, 10**6, False),
        ("100", 101, 10**6, True),
        ("1%", 500, 999, False),  # too few rows to judge a share by
        ("1%", 10, 1000, False),
        ("1 %", 11, 1000, True),
        ("0.5%", 6, 1000, True),
    ],
)
def test_a_budget_is_a_count_or_a_share(given: str, errors: int, rows: int, spent: bool) -> None:
    assert ErrorBudget.parse(given).is_spent(errors, rows, least_rows=1000) is spent


@pytest.mark.parametrize("given", ["", "-1", "101%", "1.5", "1e3", "%"])
def test_a_budget_that_is_neither_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput, match="1%"):
        ErrorBudget.parse(given)


def test_an_adapter_is_of_a_language_model_and_goes_with_each_prompt() -> None:
    asked = make_settings({"inputs": "a", "output": "b", "model": "m", "prompt": "x", "adapter": "adapters/sql"})
    assert asked.used_adapters == ("adapters/sql",)
    assert asked.prompting is not None
    request = asked.prompting.request({"x": "hello"})
    assert request is not None
    assert request.adapter == "adapters/sql"
    rows = make_settings({"inputs": "a", "output": "b", "model": "m", "adapter": "adapters/sql"})
    with pytest.raises(InvalidInput, match=r"adapter: 'adapters/sql'.*m is not a language model"):
        rows.check_model(is_llm=False)


@pytest.mark.parametrize("place", ["", "gopher://x", "file:///etc/passwd"])
def test_a_notice_is_looked_for_where_it_can_be(place: str) -> None:
    with pytest.raises(InvalidInput, match="https:// address, or a file"):
        make_settings({"inputs": ["a.csv"], "model": "m", "output": "o", "spot_notice": place})


@pytest.mark.parametrize(
    "words",
    [
        {"compression": "lzma"},
        {"compression": "zstd:99"},
        {"compression": "snappy:1"},
        {"compression": "gzip:x"},
        {"file_size": -1.0},
        {"file_size": 1e6, "output_format": "jsonl"},
        {"into": "a.duckdb", "output_format": "jsonl"},
        {"into": "a.duckdb", "into_key": "id"},
        {"into_key": "id", "keep": ["id"]},
        {"into": "a.duckdb", "into_table": " "},
    ],
)
def test_layouts_and_stores_that_cannot_be_are_refused(words: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        make_settings({"inputs": ["a"], "output": "o", "model": "m", **words})
