"""Pieces of an index: which rows have a place in it, and which of two with one key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from twoshift.errors import Broken, InvalidInput
from twoshift.vectors.pieces import PieceSet, check_key_type, piece_batch, piece_schema


def written(path: Path, vectors: list[Any], keys: list[Any] | None = None, key_type: Any = None) -> Path:
    """A piece of two batches, as a worker writes one."""
    part = {"vector": pa.array(vectors, pa.list_(pa.float32(), 2))}
    if keys is not None:
        part["id"] = pa.array(keys)
        key_type = key_type or check_key_type("id", part["id"].type)
    schema, batch = piece_schema(2, key_type), pa.record_batch(part)
    with pa.ipc.new_file(str(path), schema) as writer:
        for half in (batch.slice(0, len(vectors) // 2), batch.slice(len(vectors) // 2)):
            writer.write_batch(piece_batch(half, "vector", None if keys is None else "id", schema))
    return path


def test_rows_without_a_usable_vector_are_left_out_and_counted(tmp_path: Path) -> None:
    piece = written(tmp_path / "a", [[3, 4], None, [0, 0], [np.nan, 1], [np.inf, 1], [1, 0]])
    found = PieceSet.read([piece], 2, "cos")
    assert found.left_out == {"without a result": 1, "of length 0": 1, "not finite": 2}
    assert found.keys.to_pylist() == [0, 5]  # the row number in the output
    assert np.concatenate([*found.chunks()]) == pytest.approx(np.array([[0.6, 0.8], [1, 0]]))
    assert (found.count, found.rows) == (2, 6)


def test_a_vector_of_zeros_has_a_place_where_no_angle_is_measured(tmp_path: Path) -> None:
    found = PieceSet.read([written(tmp_path / "a", [[0, 0], [3, 4]])], 2, "l2")
    assert np.concatenate([*found.chunks()]).tolist() == [[0, 0], [3, 4]]


@pytest.mark.parametrize("keys", [["a", "b", "a", "c"], [7, 8, 7, 9]])
def test_the_last_row_of_a_key_wins_over_all_pieces(tmp_path: Path, keys: list[Any]) -> None:
    first = written(tmp_path / "a", [[1, 0], [0, 1]], keys[:2])
    second = written(tmp_path / "b", [[0, 2], [3, 0]], keys[2:])
    found = PieceSet.read([first, second], 2, "ip")
    assert found.keys.to_pylist() == [keys[1], keys[2], keys[3]]
    assert np.concatenate([*found.chunks()]).tolist() == [[0, 1], [0, 2], [3, 0]]
    assert found.left_out == {"superseded by a later row with the same key": 1}
    assert found.take(np.array([0, 2])).tolist() == [[0, 1], [3, 0]]


def test_a_failed_row_does_not_supersede_a_good_one(tmp_path: Path) -> None:
    found = PieceSet.read([written(tmp_path / "a", [[1, 0], None, [0, 1], [1, 1]], ["a", "a", None, "b"])], 2, "ip")
    assert found.keys.to_pylist() == ["a", "b"]
    assert found.left_out == {"without a result": 1, "without a key": 1}


def test_no_pieces_are_no_vectors(tmp_path: Path) -> None:
    found = PieceSet.read([written(tmp_path / "a", [])], 2, "cos")
    assert (found.count, [*found.chunks()], found.take(np.array([], np.int64)).shape) == (0, [], (0, 2))


def test_damaged_pieces_and_other_dimensions_are_refused(tmp_path: Path) -> None:
    piece = written(tmp_path / "a", [[1, 0]])
    with pytest.raises(Broken, match="2 dimensions, but the index has vectors of 3 dimensions"):
        PieceSet.read([piece], 3, "cos")
    piece.write_bytes(piece.read_bytes()[:100])
    with pytest.raises(Broken, match="not a piece"):
        PieceSet.read([piece], 2, "cos")


@pytest.mark.parametrize("kind", [pa.float64(), pa.uint64(), pa.timestamp("s"), pa.list_(pa.int64())])
def test_keys_are_integers_or_strings(kind: pa.DataType) -> None:
    with pytest.raises(InvalidInput, match="integers or strings"):
        check_key_type("id", kind)
    assert check_key_type("id", pa.uint32()) == pa.int64()
    assert check_key_type("id", pa.string()) == pa.large_string()
