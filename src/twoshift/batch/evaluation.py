"""Rows that a language model is judged by before a job starts: an evaluation set, or the first rows of the job."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator

from twoshift.batch.folder import is_below
from twoshift.batch.inputs import InputFile, read, resolve
from twoshift.batch.prompting import Prompting
from twoshift.batch.query import query_location
from twoshift.batch.settings import JobSettings
from twoshift.batch.table_rows import readable_rows
from twoshift.errors import InvalidInput
from twoshift.generation import GenerationParams, GenerationRequest, Message
from twoshift.ports import Blobs

__all__ = ["EvaluationRows", "evaluation_requests", "read_evaluation", "sampled_requests"]

_COLUMNS = ("prompt", "answer")
_READ_ROWS, _READ_BYTES = 1024, 4 << 20
_SAMPLE_FILES = 4
_MAX_TOKENS = 256  # of an answer, where no job says
_FORMATS = ("jsonl", "parquet")

EvaluationRows = list[tuple[str, str]]  # a prompt, and the answer that is expected


def read_evaluation(location: str, blobs_for: Callable[[str], Blobs]) -> tuple[EvaluationRows, str]:
    """Its rows, and a fingerprint of them; raises InvalidInput where it is no evaluation set."""
    try:
        [file] = resolve([location], blobs_for)
    except InvalidInput as error:
        raise error.renamed("eval_file") from None
    except ValueError as error:
        raise InvalidInput("eval_file", location, "one .jsonl or .parquet file") from error
    if file.format.partition(".")[0] not in _FORMATS:
        raise InvalidInput("eval_file", location, f"a file in the format {' or '.join(_FORMATS)}")
    rows: EvaluationRows = []
    try:
        for batch in read(file.head(), file, blobs_for(file.location), _COLUMNS, _READ_ROWS, _READ_BYTES):
            told = batch.select(_COLUMNS).to_pylist()
            rows += [(each["prompt"], each["answer"]) for each in told]
    except InvalidInput as error:
        raise InvalidInput("eval_file", location, "a file with the columns `prompt` and `answer`") from error
    wrong = next((at for at, row in enumerate(rows, 1) if not all(isinstance(each, str) for each in row)), None)
    if wrong is not None or not rows:
        where = "" if wrong is None else f"; in row {wrong}, `prompt` or `answer` is not a text"
        accepted = (
            f"a file with at least one row, and with texts in the columns `prompt` and `answer` of all rows{where}"
        )
        raise InvalidInput("eval_file", location, accepted)
    return rows, hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def evaluation_requests(rows: EvaluationRows, prompting: Prompting | None) -> list[GenerationRequest]:
    """As a job asks: with its parameters, and with its system message where that is the same for all rows."""
    params = GenerationParams(temperature=0.0, max_tokens=_MAX_TOKENS, may_shorten=True)
    params = params if prompting is None else prompting.params
    told = None if prompting is None or prompting.system is None else prompting.system
    system = () if told is None or told.columns else (Message("system", told.filled({}) or ""),)
    return [GenerationRequest((*system, Message("user", prompt)), params) for prompt, _ in rows]


def sampled_requests(settings: JobSettings, blobs_for: Callable[[str], Blobs], rows: int) -> list[GenerationRequest]:
    """Rows from the beginnings of a few of the job's files, as the job asks them."""
    if settings.query is not None:
        found = resolve([query_location(settings.output)], blobs_for)
        return _sampled(settings, found, blobs_for, rows)
    found = resolve(settings.inputs, blobs_for, settings.input_format)
    files = [file for file in found if not is_below(file.location, settings.output)]
    return _sampled(settings, files, blobs_for, rows)


def _sampled(
    settings: JobSettings, files: list[InputFile], blobs_for: Callable[[str], Blobs], rows: int
) -> list[GenerationRequest]:
    chosen = files[:: max(1, len(files) // _SAMPLE_FILES)][:_SAMPLE_FILES]
    each = -(-rows // max(1, len(chosen)))

    def of(file_at: int) -> Iterator[GenerationRequest]:
        file = chosen[file_at]
        for batch in read(file.head(), file, blobs_for(file.location), settings.model_columns, rows, _READ_BYTES):
            yield from (row for row in readable_rows(batch, settings).values() if row is not None)

    taken = [request for at in range(len(chosen)) for _, request in zip(range(each), of(at), strict=False)]
    return taken[:rows]
