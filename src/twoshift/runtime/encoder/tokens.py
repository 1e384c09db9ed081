"""Texts -> token ids, flat: what an encoder's call is made of."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import InvalidInput
from twoshift.extras import needed
from twoshift.ports import Columns
from twoshift.runtime.encoder.folder import ModelFolder
from twoshift.runtime.encoder.text_pieces import text_pieces
from twoshift.runtime.encoder.tokenizer_file import damaged, read_folder_tokenizer
from twoshift.runtime.encoder.words import WordTokens, WordUse
from twoshift.runtime.load_limit import loading_step

__all__ = ["TextTokenizer", "TokenRows", "concat"]

_LOOKED_AT = 2000  # tokens of a vocabulary, for words
# Each is tokenised by the thread that has it: it costs the same, and the library's pool, which it wakes for two texts,
# answers live requests twenty times as late where the cores are busy. A job's windows are for the pool
_FEW_TEXTS = 256
_ANY_ID = 1 << 31  # where the config does not say how many there are
_KEYS = ({"text", "prompt"}, {"text", "prompt_name"})  # of a row that has not the default prompt
_WHOLE = np.zeros(1, np.bool_)  # shared: nobody writes to it
_WHOLE.flags.writeable = False


@dataclass(slots=True, eq=False)
class TokenRows:
    """Rows of tokens, end to end: row k is `ids[offsets[k]:offsets[k + 1]]`. Not to be changed."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]  # one more than there are rows; need not begin at 0
    truncated: NDArray[np.bool_]
    type_ids: NDArray[np.int32] | None = None  # beside `ids`; None: every token is of the first text
    skipped: NDArray[np.int32] | None = None  # tokens at the front of each row that are not pooled; None: none
    lengths: NDArray[np.int64] = field(init=False)  # tokens of each row

    def __post_init__(self) -> None:
        self.lengths = self.offsets[1:] - self.offsets[:-1]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def signature(self) -> None:
        """Rows of tokens are of one type, and packed or padded to one size."""

    def slice(self, start: int, stop: int) -> TokenRows:
        """Views of rows `start` to `stop`."""
        skipped = None if self.skipped is None else self.skipped[start:stop]
        return TokenRows(self.ids, self.offsets[start : stop + 1], self.truncated[start:stop], self.type_ids, skipped)

    def take(self, order: NDArray[np.int64]) -> TokenRows:
        """The rows at those places, in that order, end to end anew."""
        lengths = self.lengths[order]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        index = np.repeat(self.offsets[:-1][order] - offsets[:-1], lengths) + np.arange(offsets[-1])
        types = None if self.type_ids is None else self.type_ids[index]
        skipped = None if self.skipped is None else self.skipped[order]
        return TokenRows(self.ids[index], offsets, self.truncated[order], types, skipped)

    def padded(self, rows: NDArray[np.int64], pad_id: int) -> dict[str, NDArray[np.int32]]:
        """The named rows as the network wants them: `input_ids` and `lengths`, and `type_ids` where there are any."""
        lengths = self.lengths[rows]
        places = np.arange(int(lengths.max(initial=0)))
        real = places < lengths[:, None]
        index = np.where(real, self.offsets[rows][:, None] + places, 0)
        batch = {"input_ids": np.where(real, self.ids[index], np.int32(pad_id)), "lengths": lengths.astype(np.int32)}
        if self.type_ids is not None:
            batch["type_ids"] = np.where(real, self.type_ids[index], np.int32(0))
        if self.skipped is not None:
            batch["skipped"] = self.skipped[rows]
        return batch


def concat(parts: Sequence[TokenRows]) -> TokenRows:
    """One after the other, without a copy where there is only one."""
    if len(parts) == 1:
        return parts[0]
    spans = [slice(int(part.offsets[0]), int(part.offsets[-1])) for part in parts]
    sizes = [np.zeros(1, np.int64), *(part.lengths for part in parts)]
    typed = any(part.type_ids is not None for part in parts)
    return TokenRows(
        ids=_joined([part.ids[span] for part, span in zip(parts, spans, strict=True)], np.int32),
        offsets=np.cumsum(np.concatenate(sizes)),
        truncated=_joined([part.truncated for part in parts], np.bool_),
        type_ids=_joined([_types(part)[span] for part, span in zip(parts, spans, strict=True)], np.int32)
        if typed
        else None,
        skipped=np.concatenate([part.skipped for part in parts if part.skipped is not None])
        if parts and parts[0].skipped is not None  # of one model, all have them or none has
        else None,
    )


def _types(part: TokenRows) -> NDArray[np.int32]:
    return np.zeros_like(part.ids) if part.type_ids is None else part.type_ids


def _joined(arrays: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype)


class _GivenIds:
    """Token ids of the caller's own, or of words that were seen before, as the library's encodings look."""

    __slots__ = ("ids", "overflowing")

    def __init__(self, ids: list[int], is_cut: bool = False) -> None:
        self.ids, self.overflowing = ids, is_cut

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def type_ids(self) -> list[int]:
        return [0] * len(self.ids)


class TextTokenizer:
    """A folder's tokenizer. Any thread may call it: nothing is changed after it is made."""

    def __init__(
        self, folder: ModelFolder, with_type_ids: bool, tokenizer: Any = None, has_own_core: bool = False
    ) -> None:
        """`has_own_core`: batches are made of words that were seen before, too, and not in the library's threads."""
        self._folder = folder
        self._tokenizer = read_folder_tokenizer(folder) if tokenizer is None else tokenizer
        self._max_tokens = folder.max_tokens
        self._typed = with_type_ids
        self._pad_id = folder.architecture.pad_id
        self._vocabulary, self._types = folder.architecture.vocabulary or _ANY_ID, folder.architecture.types or _ANY_ID
        self._takes_pairs, self._needs_pairs = folder.takes_pairs, folder.needs_pairs
        self._prompts, self._skips = folder.prompts, folder.skips_prompts
        self._default = folder.prompts.default
        with damaged(folder.tokenizer):
            loading_step(f"testing {folder.tokenizer}")
            self._check_ids(folder)
            self._words = WordTokens(self._tokenizer, self._max_tokens)
            self._word_use = WordUse(self._words) if has_own_core else None
            self._special = _special_ids(self._tokenizer)
            self._skipped = {text: self._prompt_tokens(text) for text in folder.prompts.texts.values()}

    def __reduce__(self) -> Any:
        # With the tokenizer itself: its file may be another one by now
        return _restored, (self._folder, self._typed, self._tokenizer.to_str())

    def prepare(self, rows: Sequence[Any]) -> TokenRows:
        """As `rows`: it is a RowPreparer."""
        return self.rows(rows)

    def joined(self, parts: Sequence[TokenRows]) -> TokenRows:
        """One after the other."""
        return concat(parts)

    def arrays_of(self, rows: TokenRows) -> Columns:
        """What it has prepared, to be sent to the process that has the device; beginning at 0."""
        first, last = int(rows.offsets[0]), int(rows.offsets[-1])
        arrays = {"ids": rows.ids[first:last], "offsets": rows.offsets - first, "truncated": rows.truncated}
        if rows.type_ids is not None:
            arrays["type_ids"] = rows.type_ids[first:last]
        if rows.skipped is not None:
            arrays["skipped"] = rows.skipped
        return arrays

    def rows_of(self, arrays: Columns) -> TokenRows:
        """The rows again, without a copy."""
        return TokenRows(**arrays)

    def rows(self, texts: Sequence[Any]) -> TokenRows:
        """Token ids of texts, of pairs of texts, or those that were given; raises InvalidInput that names a bad row.

        A row may also name the prompt that goes before it: `{"text": ..., "prompt_name": "query"}`, or bring one of
        its own: `{"text": ..., "prompt": "query: "}`. Otherwise it has the model's default prompt.
        """
        checked, prompts = self._checked(texts)
        rows = self._tokens(checked)
        if self._skips:
            rows.skipped = np.array([self._skipped_of(prompt) for prompt in prompts or [""] * len(rows)], np.int32)
        return rows

    def pieces(self, row: Any, place: int) -> TokenRows:
        """A long text as several rows, the prompt before each; raises InvalidInput for what is no text."""
        prompts = self._chosen_prompts([row])
        prompt = "" if prompts is None else prompts[0]
        text = row["text"] if isinstance(row, dict) else row
        if not isinstance(text, str):
            accepted = f"a text, or a list of at most {self._max_tokens} token ids: only texts can be split"
            raise InvalidInput(f"row {place}", text, accepted)
        made = text_pieces(self._tokenizer, text, prompt, self._max_tokens)
        if not made:
            raise InvalidInput(
                f"row {place}", prompt, f"a prompt shorter than the model's limit of {self._max_tokens} tokens"
            )
        rows = self._flat_rows(made, np.cumsum([0, *map(len, made)]), np.zeros(len(made), np.bool_))
        if self._skips:
            rows.skipped = np.full(len(made), self._skipped_of(prompt), np.int32)
        return rows

    def median_characters(self) -> int:
        """Of the vocabulary's tokens."""
        return int(np.median([len(token) for token in self._tokenizer.get_vocab(with_added_tokens=True)]))

    def some_words(self, most: int) -> list[str]:
        """The first tokens of the vocabulary that are texts of their own."""
        found = list[str]()
        for id_ in range(min(_LOOKED_AT, self._tokenizer.get_vocab_size())):
            text = self._tokenizer.decode([id_], skip_special_tokens=True).strip()
            if text.isalpha():
                found.append(text)
        return found[:most]

    def _tokens(self, checked: list[Any]) -> TokenRows:
        if len(checked) == 1 and isinstance(checked[0], str) and (ids := self._words.of(checked[0])):
            types = np.zeros(len(ids), np.int32) if self._typed else None
            return TokenRows(np.array(ids, np.int32), np.array((0, len(ids))), _WHOLE, types)
        encodings = self._encoded(self._with_known(checked))
        if len(encodings) == 1 and 0 < len(encodings[0]) < self._max_tokens:
            return self._one_row(encodings[0])
        lengths = np.fromiter(map(len, encodings), np.int64, len(encodings))
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        truncated = np.zeros(len(encodings), np.bool_)
        for row in np.flatnonzero(lengths >= self._max_tokens).tolist():
            truncated[row] = bool(encodings[row].overflowing)
        return _without_empty(self._flat_rows(encodings, offsets, truncated), self._pad_id)

    def _flat_rows(self, encodings: list[Any], offsets: NDArray[np.int64], truncated: NDArray[np.bool_]) -> TokenRows:
        ids = _below(self._vocabulary, _flat((encoding.ids for encoding in encodings), int(offsets[-1])), offsets)
        types = None
        if self._typed:
            types = _below(self._types, _flat((encoding.type_ids for encoding in encodings), len(ids)), offsets)
        return TokenRows(ids, offsets, truncated, types)

    def _with_known(self, rows: list[Any]) -> list[Any]:
        """Texts of words that were seen before as their tokens."""
        if self._word_use is None or (known := self._word_use.tokens_of(rows)) is None:
            return rows
        return [row if ids is None else _GivenIds(ids) for row, ids in zip(rows, known, strict=True)]

    def _one_row(self, encoding: Any) -> TokenRows:
        """What most requests have; of the ordinary length."""
        offsets = np.array((0, len(encoding)))
        ids = _below(self._vocabulary, np.array(encoding.ids, np.uint32), offsets)
        types = _below(self._types, np.array(encoding.type_ids, np.uint32), offsets) if self._typed else None
        return TokenRows(ids, offsets, _WHOLE, types)

    def _encoded(self, rows: list[Any]) -> list[Any]:
        given = sum(isinstance(each, _GivenIds) for each in rows)
        if given in (0, len(rows)):
            return self._encoded_texts(rows) if not given else rows
        # An empty text keeps the place of each that is given, so that errors name the right row.
        encoded = self._encoded_texts(["" if isinstance(each, _GivenIds) else each for each in rows])
        return [row if isinstance(row, _GivenIds) else made for row, made in zip(rows, encoded, strict=True)]

    def _encoded_texts(self, texts: list[Any]) -> list[Any]:
        try:
            if len(texts) > _FEW_TEXTS:
                return self._tokenizer.encode_batch_fast(texts)
            return [self._tokenizer.encode_batch_fast([text])[0] for text in texts]
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException as error:  # a panic of the library's is no Exception
            row = self._guilty(texts)
            told = f"that the tokenizer accepts ({str(error)[:200]})"
            accepted = told if _is_unicode(texts[row]) else "in valid Unicode, without lone surrogates"
            raise InvalidInput(f"row {row}", texts[row], f"a text {accepted}") from error

    def _guilty(self, texts: list[Any]) -> int:
        """The first row that fails alone; the first of all where none does."""
        for row, text in enumerate(texts):
            try:
                self._tokenizer.encode_batch_fast([text])
            except KeyboardInterrupt:
                raise
            except BaseException:
                return row
        return 0

    def _checked(self, texts: Sequence[Any]) -> tuple[list[Any], list[str] | None]:
        """The rows with their prompts before them, and the prompts; None where no row has one."""
        if isinstance(texts, str):  # it would be a row a letter
            raise InvalidInput("rows", texts, "a list of texts")
        prompts = self._chosen_prompts(texts)
        if prompts is not None:
            texts = [text["text"] if isinstance(text, dict) else text for text in texts]
        checked = [text if type(text) is str else self._other(row, text) for row, text in enumerate(texts)]
        if self._needs_pairs:
            row = next((row for row, text in enumerate(checked) if not isinstance(text, tuple)), None)
            if row is not None:
                raise InvalidInput(f"row {row}", texts[row], "a pair of texts: this model scores a text for a query")
        return checked if prompts is None else list(map(_prompted, prompts, checked)), prompts

    def _chosen_prompts(self, texts: Sequence[Any]) -> list[str] | None:
        """The prompt of each row; those of ids, whose caller has put theirs in, are empty. None: no row has one."""
        default = self._default
        if not default and not any(isinstance(text, dict) for text in texts):
            return None
        return [self._chosen(row, text, default) for row, text in enumerate(texts)]

    def _chosen(self, row: int, text: Any, default: str) -> str:
        if isinstance(text, dict):
            if text.keys() not in _KEYS:
                accepted = "a text, or a dict with `text` and either `prompt_name` or `prompt`"
                raise InvalidInput(f"row {row}", text, accepted)
            return self._prompts.chosen(text, f"row {row}")
        return "" if isinstance(text, list) and text and type(text[0]) is int else default

    def _skipped_of(self, prompt: str) -> int:
        known = self._skipped.get(prompt)
        return self._prompt_tokens(prompt) if known is None else known

    def _prompt_tokens(self, prompt: str) -> int:
        """Of a prompt alone, without the special token that ends it: as sentence-transformers counts them."""
        if not prompt:
            return 0
        ids = self._tokenizer.encode(prompt).ids
        return len(ids) - bool(ids and ids[-1] in self._special)

    def _other(self, row: int, value: Any) -> str | tuple[str, str] | _GivenIds:
        if isinstance(value, str):  # a subclass, such as numpy's
            return str(value)
        is_pair = isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(each, str) for each in value)
        if is_pair and self._takes_pairs:
            return (str(value[0]), str(value[1]))
        if isinstance(value, list) and value and type(value[0]) is int:
            return self._ids(row, value)
        pair = (
            "a pair of texts" if self._needs_pairs else "a text or a pair of texts" if self._takes_pairs else "a text"
        )
        raise InvalidInput(f"row {row}", value, pair)

    def _ids(self, row: int, given: list[Any]) -> _GivenIds:
        ids = _GivenIds(given[: self._max_tokens], len(given) > self._max_tokens)
        for each in ids.ids:
            if type(each) is not int or not 0 <= each < self._vocabulary:
                raise InvalidInput(f"row {row}", each, f"token ids of this model, from 0 to {self._vocabulary - 1}")
        return ids

    def _check_ids(self, folder: ModelFolder) -> None:
        """A token that the network has no vector for would be read from beside the table."""
        shortest = self._tokenizer.num_special_tokens_to_add(self._takes_pairs)
        if shortest >= self._max_tokens:
            raise InvalidInput(f"{folder.path}: max_seq_length", self._max_tokens, f"more than {shortest} tokens")
        empty = [("",), ("", "")] if self._takes_pairs else [("",)]
        added = [self._tokenizer.encode(*texts).ids for texts in empty]  # a template may add what no word has
        words = self._tokenizer.get_vocab(with_added_tokens=True).values()
        largest = max((*words, *itertools.chain.from_iterable(added)), default=0)
        pad = self._pad_id - folder.architecture.spare_vectors
        for where, number in ((str(folder.tokenizer), largest), (f"{folder.path}: pad_token_id", pad)):
            if number >= self._vocabulary:
                raise InvalidInput(where, number, f"token ids below {self._vocabulary}, the vocab_size of the model")


def _restored(folder: ModelFolder, with_type_ids: bool, tokenizer: str) -> TextTokenizer:
    tokenizers = needed("tokenizers", "encoder", str(folder.path))
    # In another process, which prepares and does nothing else
    return TextTokenizer(folder, with_type_ids, tokenizers.Tokenizer.from_str(tokenizer), has_own_core=True)


def _prompted(prompt: str, row: Any) -> Any:
    """Before a text, or before the first text of a pair."""
    if isinstance(row, tuple):
        return (f"{prompt}{row[0]}", row[1])
    return f"{prompt}{row}" if isinstance(row, str) else row


def _special_ids(tokenizer: Any) -> frozenset[int]:
    return frozenset(number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special)


def _without_empty(rows: TokenRows, pad_id: int) -> TokenRows:
    """A row without any token, as an empty text is where there are no special ones, gets one of padding."""
    lengths = rows.lengths
    if lengths.all():
        return rows
    places = rows.offsets[:-1][lengths == 0]
    types = None if rows.type_ids is None else np.insert(rows.type_ids, places, 0)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.maximum(lengths, 1))])
    return TokenRows(np.insert(rows.ids, places, pad_id), offsets, rows.truncated, types)


def _is_unicode(text: str | tuple[str, str]) -> bool:
    try:
        "".join(text).encode()
    except UnicodeEncodeError:
        return False
    return True


def _flat(lists: Any, count: int) -> NDArray[np.uint32]:
    return np.fromiter(itertools.chain.from_iterable(lists), np.uint32, count)


def _below(limit: int, numbers: NDArray[np.uint32], offsets: NDArray[np.int64]) -> NDArray[np.int32]:
    """The numbers, each with a place in the network's table; raises InvalidInput that names a row without one."""
    largest = numbers.max(initial=0)
    if largest >= limit:
        row = int(np.searchsorted(offsets, numbers.argmax(), side="right")) - 1
        accepted = f"token ids and type ids below {limit}: the model has no vectors for larger ids"
        raise InvalidInput(f"row {row}", f"token {largest}", accepted)
    return numbers.view(np.int32)
