"""XGBoost's model files, checked before the library sees them: it reads past the end of a damaged one and crashes."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

__all__ = ["DamagedModel", "check_xgboost_file"]

_DEEPEST = 64
_MOST_OUTPUTS = 1 << 20
_MOST_FEATURES = 1 << 24  # a row of them is 64 MiB
_NO_PARENT = 2**31 - 1
_NUMBERS = {b"i": ">i1", b"U": ">u1", b"I": ">i2", b"l": ">i4", b"L": ">i8", b"d": ">f4", b"D": ">f8"}
_CONSTANTS = {b"T": True, b"F": False, b"Z": None}
_BY_NODE = ("left_children", "right_children", "parents", "split_indices", "split_conditions", "default_left")
_BY_NODE_FIGURES = ("loss_changes", "sum_hessian")


class DamagedModel(Exception):
    """What is wrong with the file, in words."""


def check_xgboost_file(data: bytes) -> None:
    """Whether every index in the model stays inside the model; raises DamagedModel."""
    document = _json(data) if data[:1] == b"{" and data[1:2] in b'" \n\r\t' else _UbjReader(data).document()
    try:
        learner = document["learner"]
        booster = learner["gradient_booster"]
        features = int(learner["learner_model_param"]["num_feature"])
        _check(0 <= features < _MOST_FEATURES, "the number of features is invalid")
        targets = _outputs(learner["learner_model_param"])
        if booster["name"] == "gblinear":
            fits = len(booster["model"]["weights"]) == (features + 1) * targets
            _check(fits, "the number of weights does not match the number of features")
            return
        _check_forest(booster["gbtree"]["model"] if booster["name"] == "dart" else booster["model"], features, targets)
        if booster["name"] == "dart":
            _check(
                len(booster["weight_drop"]) == len(booster["gbtree"]["model"]["trees"]),
                "the number of values in weight_drop differs from the number of trees",
            )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DamagedModel(f"a field is missing or of the wrong type: {error}") from error


def _outputs(parameters: Mapping[str, Any]) -> int:
    classes, targets = int(parameters.get("num_class", 0)), int(parameters.get("num_target", 1))
    _check(0 <= classes < _MOST_OUTPUTS and 1 <= targets < _MOST_OUTPUTS, "the number of outputs is invalid")
    return max(1, classes, targets)


def _check_forest(forest: Mapping[str, Any], features: int, groups: int) -> None:
    trees = forest["trees"]
    info = np.asarray(forest["tree_info"], np.int64)
    _check(len(trees) == int(forest["gbtree_model_param"]["num_trees"]) == len(info), "some trees are missing")
    _check(bool(np.all((info >= 0) & (info < groups))), "a tree belongs to no output")
    pointers = np.asarray(forest.get("iteration_indptr", [0, len(trees)]), np.int64)
    _check(
        bool(len(pointers) and pointers[0] == 0 and pointers[-1] == len(trees)),
        "the boosting rounds and the number of trees do not match",
    )
    _check(bool(np.all(np.diff(pointers) >= 0)), "the boosting rounds are out of order")
    for number, tree in enumerate(trees):
        _check(tree["id"] == number, "the trees are out of order")
        try:
            _check_tree(tree, features)
        except DamagedModel as error:
            raise DamagedModel(f"tree {number}: {error}") from error


def _check_tree(tree: Mapping[str, Any], features: int) -> None:
    nodes = int(tree["tree_param"]["num_nodes"])
    arrays = {name: np.asarray(tree[name]) for name in _BY_NODE + _BY_NODE_FIGURES}
    _check(nodes >= 1 and all(array.shape == (nodes,) for array in arrays.values()), "some nodes are missing")
    left, right, splits = (_integers(arrays[name]) for name in ("left_children", "right_children", "split_indices"))
    inner = left != -1
    children = np.concatenate([left[inner], right[inner]])
    _check(bool(np.all((children > 0) & (children < nodes))), "a child node is outside the tree")
    # one parent each and none for the root: every walk from the root ends
    _check(len(np.unique(children)) == len(children), "a node has two parents")
    _check(
        bool(np.all((splits[inner] >= 0) & (splits[inner] < features))), "the tree uses a feature that does not exist"
    )
    _check_parents(_integers(arrays["parents"]), left, right, inner)
    _check_leaves(tree, nodes, right[~inner])
    _check_categories(tree, nodes)


def _check_parents(
    parents: NDArray[np.int64], left: NDArray[np.int64], right: NDArray[np.int64], inner: NDArray[np.bool_]
) -> None:
    """Every child names the node that names it; the root names none."""
    here = np.flatnonzero(inner)
    same = np.array_equal(parents[left[inner]], here) and np.array_equal(parents[right[inner]], here)
    nobody = (parents == _NO_PARENT) | (parents == -1)
    known = nobody | ((parents >= 0) & (parents < len(parents)))  # pruned nodes keep theirs
    _check(same and bool(nobody[0] and np.all(known)), "the parent of a node is inconsistent")


def _check_leaves(tree: Mapping[str, Any], nodes: int, right_of_leaves: NDArray[np.int64]) -> None:
    width = int(tree["tree_param"].get("size_leaf_vector", 1))
    _check(width >= 0 and len(tree["base_weights"]) == nodes * max(1, width), "the weights do not match the nodes")
    if width > 1:  # there, a leaf's right child is its place among the leaves
        leaves = len(tree["leaf_weights"]) // width
        _check(len(tree["leaf_weights"]) == leaves * width, "some leaves are missing")
        _check(bool(np.all((right_of_leaves >= 0) & (right_of_leaves < leaves))), "a leaf has no weights")


def _check_categories(tree: Mapping[str, Any], nodes: int) -> None:
    names = ("categories", "categories_nodes", "categories_segments", "categories_sizes")
    values, owners, starts, sizes = (_integers(np.asarray(tree.get(name, []))) for name in names)
    _check(len(owners) == len(starts) == len(sizes), "some categories are missing")
    _check(
        bool(np.all((owners >= 0) & (owners < nodes))) and bool(np.all(np.diff(owners) > 0)), "a category has no node"
    )
    inside = (starts >= 0) & (sizes >= 0) & (starts + sizes <= len(values))
    _check(bool(np.all(inside)) and bool(np.all((values >= 0) & (values < 1 << 24))), "a category is outside the tree")
    kinds = _integers(np.asarray(tree.get("split_type", np.zeros(nodes, np.int64))))
    _check(kinds.shape == (nodes,) and bool(np.all((kinds == 0) | (kinds == 1))), "the kind of a split is unknown")
    _check(set(np.flatnonzero(kinds)) <= set(owners.tolist()), "a categorical split has no categories")


def _integers(array: NDArray[Any]) -> NDArray[np.int64]:
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iub"):
        raise DamagedModel("an index is not a whole number")
    return array.astype(np.int64)


def _check(good: bool, otherwise: str) -> None:
    if not good:
        raise DamagedModel(otherwise)


def _json(data: bytes) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        _check(len(found) == len(pairs), "a name is given twice")
        return found

    try:
        return json.loads(data, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise DamagedModel(f"the file is not complete JSON ({error})") from error


class _UbjReader:
    """UBJSON as XGBoost writes it: big-endian, typed arrays, nothing that runs past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def document(self) -> Any:
        if self._data[:1] != b"{":
            raise DamagedModel("the file is neither JSON nor UBJSON")
        found = self._value(self._take(1), 0)
        _check(self._at == len(self._data), "there is extra data after the end")
        return found

    def _value(self, marker: bytes, depth: int) -> Any:
        _check(depth < _DEEPEST, "the data is nested too deeply")
        if marker in _NUMBERS:
            return self._numbers(marker, 1)[0].item()
        if marker in _CONSTANTS:
            return _CONSTANTS[marker]
        match marker:
            case b"S":
                return self._text()
            case b"{":
                return self._object(depth)
            case b"[":
                return self._array(depth)
            case _:
                return self._fail(marker)

    def _object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._take(1) != b"}":
            self._at -= 1  # the name begins with that byte
            name = self._text()
            _check(name not in found, f"{name!r} is given twice")
            found[name] = self._value(self._take(1), depth + 1)
        return found

    def _array(self, depth: int) -> Any:
        marker = self._take(1)
        if marker == b"$":
            kind = self._take(1)
            if kind not in _NUMBERS or self._take(1) != b"#":
                self._fail(kind)
            return self._numbers(kind, self._count())
        if marker == b"#":
            count = self._count()
            _check(count <= len(self._data) - self._at, "the file is truncated")
            return [self._value(self._take(1), depth + 1) for _ in range(count)]
        found: list[Any] = []
        while marker != b"]":
            found.append(self._value(marker, depth + 1))
            marker = self._take(1)
        return found

    def _text(self) -> str:
        try:
            return self._take(self._count()).decode()
        except UnicodeDecodeError as error:
            raise DamagedModel(f"a name is not text ({error})") from error

    def _count(self) -> int:
        marker = self._take(1)
        if marker != b"L":  # what XGBoost writes, and all that it reads
            self._fail(marker)
        return struct.unpack(">q", self._take(8))[0]

    def _numbers(self, marker: bytes, count: int) -> NDArray[Any]:
        dtype = np.dtype(_NUMBERS[marker])
        return np.frombuffer(self._take(count * dtype.itemsize), dtype)

    def _take(self, count: int) -> bytes:
        _check(0 <= count <= len(self._data) - self._at, f"the file is truncated after {len(self._data):,} bytes")
        self._at += count
        return self._data[self._at - count : self._at]

    def _fail(self, marker: bytes) -> NoReturn:
        raise DamagedModel(f"byte {self._at - 1:,} ({marker!r}) is invalid at this position")
