"""The input of jobs: which files, how they are cut, and their rows."""

from twoshift.batch.inputs.columns import joined
from twoshift.batch.inputs.conform import conform, fitted
from twoshift.batch.inputs.cut import cut
from twoshift.batch.inputs.file import Constant, InputFile
from twoshift.batch.inputs.fingerprint import ContentSums
from twoshift.batch.inputs.piece import READ_ERROR, Piece, Shard, ShardTarget
from twoshift.batch.inputs.read import read
from twoshift.batch.inputs.resolve import resolve
from twoshift.batch.inputs.schema import kept_schema, model_types
from twoshift.batch.inputs.text import piece_lines
from twoshift.batch.inputs.types import NULL_WORDS, TYPES, as_typed

__all__ = [
    "NULL_WORDS",
    "READ_ERROR",
    "TYPES",
    "Constant",
    "ContentSums",
    "InputFile",
    "Piece",
    "Shard",
    "ShardTarget",
    "as_typed",
    "conform",
    "cut",
    "fitted",
    "joined",
    "kept_schema",
    "model_types",
    "piece_lines",
    "read",
    "resolve",
]
