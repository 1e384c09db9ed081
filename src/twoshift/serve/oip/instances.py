"""KServe's first protocol: instances to rows, and rows to predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twoshift.engine import RowResult
from twoshift.errors import InvalidInput, Malformed
from twoshift.ports import RuntimeInfo
from twoshift.serve.oip.rows import declared_inputs

__all__ = ["predictions_of", "rows_of"]

_TEXT, _PAIR = ("text",), ("query", "text")
_NO_IDS = 'a text; POST /v1/embeddings takes ids of this model\'s own tokenizer with "allow_token_ids": true'


def rows_of(info: RuntimeInfo, instances: Sequence[Any]) -> list[Any]:
    """An instance is a row: an object by the model's inputs, or their values in order; raises InvalidInput."""
    names = tuple(tensor.name for tensor in declared_inputs(info))
    texts = all(tensor.dtype == "text" for tensor in declared_inputs(info))
    if not info.inputs and not isinstance(info.example, str):
        if not isinstance(info.example, Mapping):
            return list(instances)
        # Which fields a user's class needs, only it knows
        return [_in_order(each, names, k) if isinstance(each, list) else each for k, each in enumerate(instances)]
    return [_row(instance, names, texts, place) for place, instance in enumerate(instances)]


def _row(instance: Any, names: tuple[str, ...], texts: bool, place: int) -> Any:
    fields = instance if isinstance(instance, Mapping) else _in_order(instance, names, place)
    if set(fields) != set(names):
        accepted = f"an object with the fields {', '.join(names)}, or a list of their values in this order"
        raise InvalidInput(f"instances[{place}]", instance, accepted)
    if texts:
        _check_texts(fields, place)
    if texts and names == _TEXT:
        return fields["text"]
    return tuple(fields[name] for name in names) if texts and names == _PAIR else dict(fields)


def _check_texts(fields: Mapping[str, Any], place: int) -> None:
    for name, value in fields.items():
        if isinstance(value, list):  # another tokenizer's ids have vectors, too: wrong ones
            raise InvalidInput(f"instances[{place}].{name}", "token ids", _NO_IDS)
        if not isinstance(value, str):
            raise InvalidInput(f"instances[{place}].{name}", value, "a string")


def _in_order(instance: Any, names: tuple[str, ...], place: int) -> dict[str, Any]:
    values = instance if isinstance(instance, list) and len(names) > 1 else [instance]
    if len(values) != len(names):
        accepted = f"{len(names)} values: {', '.join(names)}"
        raise InvalidInput(f"instances[{place}]", f"{len(values)} values", accepted)
    return dict(zip(names, values, strict=True))


def predictions_of(rows: Sequence[RowResult]) -> list[Any]:
    """What the model answers: its only column as it is, several by their names; raises InvalidInput."""
    names = [*rows[0].columns]
    found = list[Any]()
    for place, row in enumerate(rows):
        values = {name: _plain(row[name], f"predictions[{place}]") for name in names}
        found.append(values if len(names) > 1 else values[names[0]])
    return found


def _plain(value: Any, where: str) -> Any:
    array = np.asarray(value)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        told = "the model returned NaN or infinity; to get such values, request binary outputs on /v2"
        raise Malformed(where, f"a finite number; {told}")
    plain = array.tolist()
    return plain.decode(errors="replace") if isinstance(plain, bytes) else plain
