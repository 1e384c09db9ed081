"""What a row of a model has, as far as the model says it."""

from __future__ import annotations

from twoshift.ports import RuntimeInfo

__all__ = ["is_field", "takes_texts"]


def takes_texts(info: RuntimeInfo | None) -> bool:
    """Whether a row is a text, or a pair of them; of a user's own class its example tells."""
    return info is not None and (any(each.dtype == "text" for each in info.inputs) or isinstance(info.example, str))


def is_field(info: RuntimeInfo | None, column: str) -> bool:
    """Whether a row may have a value of that name: any, where the model does not say which."""
    if info is None:
        return True
    named = info.features or (tuple(info.example) if isinstance(info.example, dict) else ())
    return not named or column in named
