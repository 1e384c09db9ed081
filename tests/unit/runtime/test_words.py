"""A text's tokens from its words' are those that the tokenizer itself has."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sampling import examples

tokenizers: Any = pytest.importorskip("tokenizers", reason="the encoder extra is not installed")

from twoshift.runtime.encoder.words import WordTokens, WordUse  # noqa: E402

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [*string.ascii_letters, *string.digits, *string.punctuation]
PIECES = [*LETTERS, *(f"##{each}" for each in "abcdefgh0123"), "ab", "##cd", "hello", "world", "don", "é", "中"]


def bert(lowercase: bool = True) -> Any:
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *PIECES])}
    unknown = SPECIAL[1]
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token=unknown, max_input_chars_per_word=12))
    made.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.add_special_tokens(SPECIAL)
    made.enable_truncation(64)
    return made


CASED = {lowercase: bert(lowercase) for lowercase in (True, False)}
KNOWN = {lowercase: WordTokens(made, 64) for lowercase, made in CASED.items()}
TEXTS = st.text(st.sampled_from([*LETTERS, " ", "\t", "\n", "\r", "\x00", "\x0b", "\x0c", "\x7f", "\x85", "é", "中"]))
WORDS = st.lists(
    st.sampled_from(["hello", "World", "abcd", "a" * 33, "x" * 13, "don't", "[MASK]", "[", "1,2.", "\x1f"])
)


@settings(max_examples=examples(500))
@given(st.one_of(TEXTS, WORDS.map(" ".join), WORDS.map("".join)), st.booleans())
@example("[MASK]", True)
@example("a" * 32, False)
@example("a\x1cb", True)
def test_tokens_are_the_tokenizer_s(text: str, lowercase: bool) -> None:
    found, expected = KNOWN[lowercase].of(text), CASED[lowercase].encode(text).ids
    assert found is None or found == expected


@given(st.lists(st.sampled_from(["hello", "World", "abcd,", "don't", "(x)", "7"]), max_size=15).map(" ".join))
def test_plain_texts_are_known(text: str) -> None:
    assert KNOWN[True].of(text) is not None


@pytest.mark.parametrize("text", ["naïve", "中文", "a [MASK] b", "[", "a\x00b", "a\x7f", "a" * 33, "b " * 64])
def test_what_is_not_plain_or_too_long_is_left_to_the_tokenizer(text: str) -> None:
    assert KNOWN[True].of(text) is None


def test_a_text_that_would_be_cut_is_left_to_the_tokenizer() -> None:
    assert KNOWN[True].of("b " * 61) is not None
    assert KNOWN[True].of("b " * 62) is None


def _other_words(made: Any) -> None:
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()


def _other_normalizer(made: Any) -> None:
    made.normalizer = tokenizers.normalizers.NFKC()


def _a_word_of_its_own(made: Any) -> None:
    made.add_tokens(["hello"])


def _one_that_becomes_a_word(made: Any) -> None:
    made.add_tokens(["\u200bhello"])


def _one_that_begins_with_a_space(made: Any) -> None:
    made.add_tokens(["\u00a0hello"])


def _the_text_twice(made: Any) -> None:
    special = [("[CLS]", 2), ("[SEP]", 3)]
    made.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A [SEP] $A", None, special)


def _a_word_around(made: Any) -> None:
    made.post_processor = tokenizers.processors.TemplateProcessing("a $A", None, [("a", 5)])


def _no_unknown(made: Any) -> None:
    made.model = tokenizers.models.WordPiece({"hello": 0}, unk_token="[NONE]")  # noqa: S106 - a token of texts


def _types(made: Any) -> None:
    made.post_processor = tokenizers.processors.TemplateProcessing("[CLS]:1 $A:1", None, [("[CLS]", 2)])


@pytest.mark.parametrize(
    "change",
    [
        _other_words,
        _other_normalizer,
        _a_word_of_its_own,
        _one_that_becomes_a_word,
        _one_that_begins_with_a_space,
        _the_text_twice,
        _a_word_around,
        _types,
        _no_unknown,
    ],
)
def test_another_kind_of_tokenizer_is_always_asked(change: Any) -> None:
    made = bert()
    change(made)
    assert WordTokens(made, 64).of("hello") is None


def test_one_that_cuts_below_the_longest_word_is_always_asked() -> None:
    assert WordTokens(bert(), 32).of("hello") is None


def test_a_word_that_has_no_token_is_left_to_the_tokenizer() -> None:
    made = bert()
    made.model = tokenizers.models.WordPiece({"a": 5, "b": 6}, unk_token="[NONE]")  # noqa: S106 - a token of texts
    words = WordTokens(made, 64)
    assert words.of("a b") == [2, 5, 6, 3]
    assert words.of("a c") is None


def test_a_long_text_s_words_are_not_looked_up() -> None:
    words = WordTokens(bert(), 64)
    assert words.of(" ".join(map(str, range(1000)))) is None
    assert not words._known  # pyright: ignore[reportPrivateUsage]
    assert words.of(" ".join(a + b for a in "abcdefgh" for b in "abcdefgh")) is None
    assert len(words._known) < 40  # pyright: ignore[reportPrivateUsage]


def test_without_special_tokens_there_are_none() -> None:
    made = bert()
    made.post_processor = tokenizers.processors.TemplateProcessing("$A", None, [])
    assert WordTokens(made, 64).of("hello a") == made.encode("hello a").ids
    assert WordTokens(made, 64).of("") == []


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twoshift.runtime.encoder.words._MANY", 10)
    made = bert()
    words = WordTokens(made, 64)
    for number in range(100):
        text = f"{number} {number + 1}"
        assert words.of(text) == made.encode(text).ids
        assert len(words._known) <= 10  # pyright: ignore[reportPrivateUsage]


def test_words_of_batches_are_given_up_where_most_of_them_are_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twoshift.runtime.encoder.words._JUDGED_TEXTS", 10)
    use = WordUse(WordTokens(bert(), 64))
    for turn in range(2):
        assert use.tokens_of([f"{turn}{at}" for at in range(10)]) is not None  # the first are for learning
    assert use.tokens_of(["hello"]) is None


def test_words_of_batches_are_used_as_long_as_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twoshift.runtime.encoder.words._JUDGED_TEXTS", 10)
    use = WordUse(WordTokens(bert(), 64))
    for _ in range(10):
        found = use.tokens_of(["hello world", ("a", "pair"), *["don't"] * 8])
        assert found is not None
        assert found[0] == bert().encode("hello world").ids
        assert found[1] is None
