"""Which of a model's prompts goes before the texts of a request."""

from __future__ import annotations

from collections.abc import Mapping

from twoshift.errors import Inapplicable, InvalidInput

__all__ = ["chosen_prompt"]

_DOCUMENTS = ("document", "passage", "corpus")  # as sentence-transformers looks for them
_TYPES = {"search_query": ("query",), "search_document": _DOCUMENTS, **dict.fromkeys(_DOCUMENTS, _DOCUMENTS)}


def chosen_prompt(name: str | None, input_type: str | None, prompts: Mapping[str, str]) -> dict[str, str]:
    """What a row has beside its text: the name of a prompt, or none; raises InvalidInput.

    Where a model has prompts and none for documents, they have none: its prompt is for queries.
    """
    if name is not None and input_type is not None:
        raise Inapplicable("input_type", input_type, "with prompt_name: use only one of the two")
    if name is not None:
        return {"prompt_name": _known("prompt_name", name, [name], prompts)}
    assert input_type is not None  # noqa: S101 - one of them was given
    names = [input_type, *_TYPES.get(input_type, ())]
    if prompts and _TYPES.get(input_type) == _DOCUMENTS and not any(each in prompts for each in names):
        return {"prompt": ""}
    return {"prompt_name": _known("input_type", input_type, names, prompts)}


def _known(field: str, value: str, names: list[str], prompts: Mapping[str, str]) -> str:
    found = next((each for each in names if each in prompts), None)
    if found is None:
        accepted = (
            f"one of {', '.join(sorted(prompts))}" if prompts else "a model with prompts; this model has no prompts"
        )
        raise InvalidInput(field, value, accepted)
    return found
