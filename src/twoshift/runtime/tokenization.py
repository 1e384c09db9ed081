"""A model's tokenizer by itself, as /tokenize shows it: texts to token ids and back, and nothing is cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from twoshift.errors import Inapplicable, InvalidInput
from twoshift.generation import Message

__all__ = ["TextTokens", "Tokenized", "encoder_tokens"]

Chat = Callable[[tuple[Message, ...]], str]


class TextTokens:
    """Any thread may use it."""

    def __init__(self, tokenizer: Any, chat: Chat | None = None) -> None:
        """`chat` joins a conversation; None where the model has none."""
        self._tokenizer, self._chat = tokenizer, chat

    def ids(self, given: str | tuple[Message, ...], special: bool) -> list[int]:
        """With the special tokens that begin and end a text, if they are wanted; raises InvalidInput."""
        if not isinstance(given, str):
            if self._chat is None:
                raise Inapplicable("messages", True, "because this model has no chat template; use `prompt` instead")
            given = self._chat(given)
        return self._tokenizer.encode(given, add_special_tokens=special).ids

    def names(self, ids: Sequence[int]) -> list[str]:
        """The tokens as the vocabulary has them."""
        return [self._tokenizer.id_to_token(each) for each in ids]

    def text(self, ids: Sequence[int]) -> str:
        """The text that they are, with special tokens; raises InvalidInput that names one that there is not."""
        for place, each in enumerate(ids):
            if self._tokenizer.id_to_token(each) is None:
                raise InvalidInput(f"tokens[{place}]", each, "an id of the model's vocabulary")
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)


@runtime_checkable
class Tokenized(Protocol):
    """A runtime that has its tokenizer at hand."""

    @property
    def tokens(self) -> TextTokens: ...


def encoder_tokens(model: str) -> TextTokens:
    """Of an encoder, by the name that the user gave it; raises InvalidInput where it has no tokenizer here, Broken."""
    from twoshift.runtime.encoder.fields import Fields
    from twoshift.runtime.encoder.tokenizer_file import read_tokenizer

    folder = _folder(model)
    if folder is None or not (folder / "tokenizer.json").is_file():
        raise InvalidInput("model", model, "a model whose folder has a tokenizer.json")
    lowered = Fields.read_if_there(folder / "sentence_bert_config.json").flag("do_lower_case")
    tokenizer = read_tokenizer(folder, lowered)
    tokenizer.no_truncation()
    return TextTokens(tokenizer)


def _folder(model: str) -> Path | None:
    from twoshift.runtime.encoder.exported import text_folder
    from twoshift.runtime.encoder.folder import MINILM, find_minilm

    if model == MINILM:
        return find_minilm()
    path = Path(model).expanduser()
    return path if path.is_dir() else text_folder(path) if path.suffix.lower() == ".onnx" else None
