"""A job's input before its model is loaded: which columns there are, of which types, and whether they can be had."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from twoshift.batch.inputs import InputFile, kept_schema, model_types
from twoshift.batch.part import check_kept
from twoshift.batch.settings import JobSettings
from twoshift.errors import InvalidInput
from twoshift.ports import Blobs

__all__ = ["FirstLook", "first_look"]


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What a plan freezes of the input's columns."""

    kept: pa.Schema
    types: dict[str, str]  # what columns of text become for the model


def first_look(
    files: Sequence[InputFile], blobs_for: Callable[[str], Blobs], settings: JobSettings
) -> FirstLook:  # fmt: skip
    """Looks into the files; raises InvalidInput where a column is missing or cannot be kept."""
    try:
        found = kept_schema(files, blobs_for, (*(settings.model_columns or ()), *settings.keep), settings.types)
    except InvalidInput as error:
        if error.field != "column":
            raise
        raise error.renamed(_setting_of(error.value, settings)) from error
    kept = pa.schema([found.field(name) for name in settings.keep])
    check_kept(kept, settings.output_format)
    if settings.endpoint is not None:
        return FirstLook(kept, {})
    types = model_types(files, blobs_for, settings.model_columns, settings.types)
    return FirstLook(kept, types if settings.takes_rows else {})


def _setting_of(column: object, settings: JobSettings) -> str:
    """Which setting names it."""
    named = {
        "text": (settings.text,),
        "pair": (settings.pair,),
        "columns": settings.columns,
        "prompt": () if settings.prompting is None else settings.prompting.columns,
    }
    return next((name for name, columns in named.items() if column in columns), "keep")
