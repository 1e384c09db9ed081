"""`Scorer` with a language model: what `run --prompt` gives, as columns of a batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import numpy as np
import pytest
from word_server import WordServer, word_server

from twoshift import InvalidInput, Scorer, spark_scorer
from twoshift.batch.pipeline_models import GENERATION
from twoshift.batch.settings import JobSettings, Mark
from twoshift.declare import declared

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}, "area": {"type": "number"}},
    "required": ["city"],
}
ROME, OSLO = {"city": "Rome", "people": 3, "area": 0.5}, {"city": "Oslo"}


@pytest.fixture(scope="module")
def words() -> Iterator[WordServer]:
    with word_server() as made:
        yield made


def column(*values: Any) -> np.ndarray:
    return np.array([*values, None], object)[:-1]


def answers(words: WordServer, prompt: str, batch: dict[str, Any], **options: Any) -> dict[str, Any]:
    scorer = Scorer(words.model, prompt=prompt, **options)
    try:
        return scorer(batch)
    finally:
        scorer.close()


def test_a_template_over_columns_is_answered_row_by_row(words: WordServer) -> None:
    batch = {"id": np.arange(3), "name": column("Ann", None, "Bo"), "age": np.array([7, 8, 9])}
    found = answers(words, "{name} is {age}", batch, system="Be short.", max_tokens=50, keep=["id"])
    assert list(found) == ["id", "text", "finish_reason", "output_tokens", "error"]
    assert found["text"].tolist() == ["Ann is 7 ", None, "Bo is 9 "]
    assert found["finish_reason"].tolist() == ["stop", None, "stop"]
    assert found["output_tokens"].tolist() == [3, 0, 3]
    assert found["error"].tolist() == [None, "column name, which the prompt uses, is null", None]


def test_plain_lists_are_a_batch_too(words: WordServer) -> None:
    found = answers(words, "question", {"question": ["one", "two"], "tags": [["a"], ["b"]]})
    assert found["text"].tolist() == ["one ", "two "]
    assert found["tags"].tolist() == [["a"], ["b"]]


def test_values_are_shown_as_a_job_shows_them_and_what_numpy_has_for_null_is_null(words: WordServer) -> None:
    when = np.array(["2026-01-02T03:04:05", "NaT"], "datetime64[ns]")
    batch = {"when": when, "list": np.array([[1, 2], [3, 4]]), "x": np.array([0.5, np.nan])}
    found = answers(words, "{when}|{list}", batch)
    assert found["text"][0].strip() == f"{datetime(2026, 1, 2, 3, 4, 5)}|[1, 2]"
    assert found["error"].tolist() == [None, "column when, which the prompt uses, is null"]
    assert answers(words, "x", batch)["error"].tolist() == [None, "column x, which the prompt uses, is null"]


def test_a_schema_s_properties_are_columns_and_an_answer_that_is_none_is_an_error(words: WordServer) -> None:
    told = [json.dumps(each) for each in (ROME, OSLO)]
    found = answers(words, "said", {"said": column(*told, "no json", None)}, json_schema=CITY, keep=())
    assert found["city"].tolist() == ["Rome", "Oslo", None, None]
    assert found["people"].tolist() == [3, 0, 0, 0]
    assert found["area"].tolist()[0] == 0.5
    assert np.isnan(found["area"][1:]).all()
    assert [error is None for error in found["error"]] == [True, True, False, False]
    assert "JSON schema" in found["error"][2]


def test_a_first_batch_of_bad_rows_only_has_all_columns(words: WordServer) -> None:
    found = answers(words, "said", {"said": column(None)}, json_schema=json.dumps(CITY), keep=())
    assert list(found) == ["text", "finish_reason", "output_tokens", "city", "people", "area", "error"]
    assert (found["text"][0], found["output_tokens"].dtype, found["people"].dtype) == (None, np.int64, np.int64)


def test_frames_have_nulls(words: WordServer) -> None:
    pd = pytest.importorskip("pandas")
    batches = [pd.DataFrame({"id": [1, 2], "said": [json.dumps(ROME), json.dumps(OSLO)]})]
    batches += [pd.DataFrame({"id": [3], "said": [None]}, index=[7])]
    score = spark_scorer(words.model, prompt="said", json_schema=CITY, keep=["id"], stop=["x"])
    rows = [row for frame in score(iter(batches)) for row in frame.to_dict("records")]
    assert [row["id"] for row in rows] == [1, 2, 3]
    assert [[row["city"], row["people"], row["area"]] for row in rows] == [
        ["Rome", 3, 0.5],
        ["Oslo", None, None],
        [None] * 3,
    ]
    assert [row["output_tokens"] for row in rows] == [6, 2, None]
    assert [row["error"] is None for row in rows] == [True, True, False]
    again = spark_scorer(words.model, prompt="said", json_schema=CITY, keep=["id"], stop=["x"])
    assert len(list(again(iter(batches)))) == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "prompt"),
        ({"text": "body"}, "instead of --text"),
        ({"prompt": "no column here {"}, "prompt"),
        ({"prompt": "body", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "body", "json_schema": {"type": "array"}}, "json_schema"),
        ({"prompt": "body", "workers": 2}, "keep, prompt, system, max_tokens"),
        ({"prompt": "body", "trust_pickle": True}, "keep, prompt, system, max_tokens"),
    ],
)
def test_what_a_job_would_refuse_is_refused(words: WordServer, options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        Scorer(words.model, **options)


def test_a_column_that_is_not_there_is_named_with_those_that_are(words: WordServer) -> None:
    with pytest.raises(InvalidInput, match="one of the columns id, body"):
        answers(words, "{name}", {"id": np.arange(1), "body": column("a")})


def test_only_a_language_model_has_prompts() -> None:
    with pytest.raises(InvalidInput, match=r"max_tokens.*minilm is not a language model"):
        Scorer("minilm", text="body", max_tokens=5)
    with pytest.raises(InvalidInput, match="did you mean smollm"):
        Scorer("smolm", prompt="body")


def test_every_setting_of_a_job_that_decides_what_answers_are_is_an_option_here() -> None:
    rows = {name for name, each in declared(JobSettings).items() if Mark.ROWS in each.marks}
    others = {"text", "pair", "prompt_name", "columns", "types", "keep", "input_format", "output_format", "endpoint"}
    others |= {"too_long", "empty", "query"}  # of texts and of files
    assert rows - others == {*GENERATION}
