"""LightGBM's model files, checked before the library sees them: it does not look where a damaged tree leads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import Broken

__all__ = ["check_lightgbm_file"]

_INVALID = "is not a valid LightGBM model (saved with save_model)"


class _Damaged(Exception):
    pass


def check_lightgbm_file(data: bytes, path: Path) -> None:
    """Whether every index in the model stays inside the model; raises Broken."""
    try:
        text = data.decode("utf-8")
        head, *trees = text.split("\nTree=")
        _check(head.startswith("tree\n"), "the file does not begin with `tree`")
        _check("\nend of trees" in text and "\nend of parameters" in text, "the file is truncated")
        fields = _fields(head)
        _check(len(trees) == len(fields.get("tree_sizes", "").split()), "some trees are missing")
        _check_counts(fields, len(trees))
        for number, tree in enumerate(trees):
            _check_tree(number, _fields(tree), int(fields["max_feature_idx"]) + 1)
    except (_Damaged, UnicodeDecodeError, ValueError, KeyError) as error:
        what = str(error) if isinstance(error, _Damaged) else f"a value is missing or not a number ({error})"
        raise Broken(f"{path} {_INVALID}: {what[:200]}") from error


def _check(good: bool, otherwise: str) -> None:
    if not good:
        raise _Damaged(otherwise)


def _check_counts(head: dict[str, str], trees: int) -> None:
    """The library allocates by these counts before it looks for what they count."""
    for name in ("num_class", "num_tree_per_iteration"):
        _check(1 <= int(head[name]) <= max(1, trees), f"{name} is {head[name]}, but the file has {trees} trees")
    names = len(head["feature_names"].split())
    last = head["max_feature_idx"]
    _check(int(last) + 1 == names, f"max_feature_idx is {last}, but the file has {names} feature names")


def _fields(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name: value for name, _, value in pairs}


def _check_tree(number: int, tree: dict[str, str], features: int) -> None:
    leaves = int(tree["num_leaves"])
    nodes = leaves - 1
    _check(leaves >= 1 and len(tree["leaf_value"].split()) == leaves, f"tree {number}: some leaves are missing")
    if not nodes:
        return
    split, left, right, kinds = (
        _whole(tree[name]) for name in ("split_feature", "left_child", "right_child", "decision_type")
    )
    thresholds = tree["threshold"].split()
    whole = len(split) == len(left) == len(right) == len(kinds) == len(thresholds) == nodes
    _check(whole, f"tree {number}: some nodes are missing")
    _check(split.min() >= 0 and split.max() < features, f"tree {number}: the tree uses a feature that does not exist")
    children = np.concatenate([left, right])  # a leaf is counted down from -1
    inner = children[children >= 0]
    # one parent each and none for the root: every walk from the root ends
    inside = -leaves <= children.min() and children.max() < nodes
    once = 0 not in inner and len(np.unique(children)) == len(children)
    _check(inside and once, f"tree {number}: the nodes do not form a tree")
    _check_categories(number, tree, kinds, thresholds)


def _check_categories(number: int, tree: dict[str, str], kinds: NDArray[np.int64], thresholds: list[str]) -> None:
    count = int(tree.get("num_cat", "0"))
    places = [int(float(each)) for each, kind in zip(thresholds, kinds, strict=True) if kind & 1]
    if not places and not count:
        return
    bounds = _whole(tree["cat_boundaries"])
    ordered = len(bounds) == count + 1 and bounds[0] == 0 and bool(np.all(np.diff(bounds) >= 0))
    inside = ordered and bounds[-1] == len(tree["cat_threshold"].split()) and max(places, default=0) < count
    _check(inside, f"tree {number}: some categories are missing")


def _whole(text: str) -> NDArray[np.int64]:
    return np.array([int(each) for each in text.split()], np.int64)
