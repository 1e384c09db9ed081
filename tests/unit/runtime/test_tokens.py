"""Texts as flat token ids."""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twoshift.errors import Broken, InvalidInput
from twoshift.runtime.encoder.architecture import Architecture, Family
from twoshift.runtime.encoder.folder import ModelFolder
from twoshift.runtime.encoder.onnx_encoder import pack_rows
from twoshift.runtime.encoder.prompts import EncoderPrompts
from twoshift.runtime.encoder.task import ClassificationTask, EmbeddingTask, RerankingTask, Task
from twoshift.runtime.encoder.tokens import TextTokenizer, TokenRows, concat

pytest.importorskip("tokenizers", reason="the encoder extra is not installed")

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "a", "b", "c", "A"]
EMBED = EmbeddingTask(("mean",))
BERT = Architecture(Family.BERT, "bert", (), 8, 1, 2, 16, len(WORDS), 8, 2, 1e-12, "gelu", 0)


def template(*parts: str) -> list[dict[str, Any]]:
    made = []
    for part in parts:
        name, kind = part.split(":")
        if name.startswith("$"):
            made.append({"Sequence": {"id": name[1:], "type_id": int(kind)}})
        else:
            made.append({"SpecialToken": {"id": name, "type_id": int(kind)}})
    return made


def tokenizer(path: Path, task: Task = EMBED, normalizer: Any = None, **more: Any) -> TextTokenizer:
    special = {word: {"id": word, "ids": [WORDS.index(word)], "tokens": [word]} for word in ("[CLS]", "[SEP]")}
    content = {
        "version": "1.0",
        "truncation": {"max_length": 5, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": {
            "strategy": {"Fixed": 6}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
            "pad_token": "[PAD]",
        },
        "added_tokens": [],
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": template("[CLS]:0", "$A:0", "[SEP]:0"),
            "pair": template("[CLS]:0", "$A:0", "[SEP]:0", "$B:1", "[SEP]:1"),
            "special_tokens": special,
        },
        "model": {"type": "WordLevel", "vocab": {word: k for k, word in enumerate(WORDS)}, "unk_token": "[UNK]"},
    }  # fmt: skip
    (path / "tokenizer.json").write_text(json.dumps(content))
    folder = ModelFolder(path, BERT, task, 8, more.pop("do_lower_case", False), (), "", "", **more)
    return TextTokenizer(folder, with_type_ids=not isinstance(task, EmbeddingTask))


def listed(rows: TokenRows) -> list[list[int]]:
    return [rows.ids[a:b].tolist() for a, b in zip(rows.offsets[:-1], rows.offsets[1:], strict=True)]


def test_texts_become_flat_ids_without_padding(tmp_path: Path) -> None:
    rows = tokenizer(tmp_path).rows(["a b", "c", "", "   ", "zzz"])
    assert listed(rows) == [[1, 4, 5, 2], [1, 6, 2], [1, 2], [1, 2], [1, 3, 2]]
    assert rows.lengths.tolist() == [4, 3, 2, 2, 3]
    assert (rows.ids.dtype, rows.offsets.dtype) == (np.int32, np.int64)
    assert rows.type_ids is None
    assert not rows.truncated.any()


def test_what_is_cut_is_told(tmp_path: Path) -> None:
    rows = tokenizer(tmp_path).rows(["a b c a b c", "a b c a b c a", "a"])
    assert rows.lengths.tolist() == [8, 8, 3]
    assert rows.truncated.tolist() == [False, True, False]


def test_no_rows_are_fine(tmp_path: Path) -> None:
    rows = tokenizer(tmp_path).rows([])
    assert len(rows) == 0
    assert len(rows.truncated) == 0


def test_a_tokenizer_without_special_tokens_gives_an_empty_text_one_token(tmp_path: Path) -> None:
    tokenizer(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(content | {"post_processor": None}))
    bare = TextTokenizer(ModelFolder(tmp_path, BERT, EMBED, 8, False, (), "", ""), False)
    assert listed(bare.rows(["", "a b", "", "", "c", ""])) == [[0], [4, 5], [0], [0], [6], [0]]
    assert listed(bare.rows([""])) == [[0]]


def test_a_default_prompt_stands_before_every_text(tmp_path: Path) -> None:
    prompted = EncoderPrompts({"query": "c "}, "query")
    assert listed(tokenizer(tmp_path, prompts=prompted).rows(["a"])) == [[1, 6, 4, 2]]


def test_pairs_have_the_types_of_their_texts(tmp_path: Path) -> None:
    rows = tokenizer(tmp_path, RerankingTask("sigmoid")).rows([("a b", "c"), ["a", "a b c a b c"]])
    assert listed(rows) == [[1, 4, 5, 2, 6, 2], [1, 4, 2, 4, 5, 6, 4, 2]]
    assert rows.type_ids is not None
    assert rows.type_ids.tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1]
    assert rows.truncated.tolist() == [False, True]


def test_a_classifier_takes_texts_and_pairs(tmp_path: Path) -> None:
    rows = tokenizer(tmp_path, ClassificationTask(("x", "y"), False)).rows(["a", ("a", "b")])
    assert rows.lengths.tolist() == [3, 5]


@pytest.mark.parametrize("value", [None, 3, b"a", ["a"], ("a", 3), {"text": "a"}, ("a", "b", "c")])
@pytest.mark.parametrize("task", [EMBED, RerankingTask("sigmoid"), ClassificationTask(("x", "y"), False)])
def test_a_row_that_is_no_text_is_named(tmp_path: Path, value: Any, task: Task) -> None:
    good = ("a", "b") if isinstance(task, RerankingTask) else "a"
    with pytest.raises(InvalidInput, match="row 2"):
        tokenizer(tmp_path, task).rows([good, good, value])


def test_a_single_text_is_no_list_of_texts(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="a list of texts"):
        tokenizer(tmp_path).rows("one text")


def test_a_lone_surrogate_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"row 1.*surrogates"):
        tokenizer(tmp_path).rows(["a", "\ud800 b"])
    with pytest.raises(InvalidInput, match=r"row 0.*surrogates"):
        tokenizer(tmp_path, RerankingTask("sigmoid")).rows([("a", "\udfff"), ("a", "b")])


def test_a_pair_for_an_embedding_and_a_text_for_a_reranker_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"row 0.*a text$"):
        tokenizer(tmp_path).rows([("a", "b")])
    with pytest.raises(InvalidInput, match=r"row 1.*a pair of texts"):
        tokenizer(tmp_path, RerankingTask("sigmoid")).rows([("a", "b"), "a"])


def test_lower_case_is_added_where_the_folder_asks_for_it(tmp_path: Path) -> None:
    assert listed(tokenizer(tmp_path).rows(["A"])) == [[1, 7, 2]]
    assert listed(tokenizer(tmp_path, do_lower_case=True).rows(["A"])) == [[1, 4, 2]]
    bert = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert listed(tokenizer(tmp_path, normalizer=bert | {"lowercase": False}).rows(["A"])) == [[1, 4, 2]]


def test_a_damaged_tokenizer_is_broken(tmp_path: Path) -> None:
    tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0", "model": {"type": "Evil"}}')
    with pytest.raises(Broken, match=r"tokenizer\.json is damaged"):
        TextTokenizer(ModelFolder(tmp_path, BERT, EMBED, 8, False, (), "", ""), False)


def test_a_token_without_a_vector_is_refused(tmp_path: Path) -> None:
    tokenizer(tmp_path)
    small = Architecture(Family.BERT, "bert", (), 8, 1, 2, 16, len(WORDS) - 1, 8, 2, 1e-12, "gelu", 0)
    with pytest.raises(InvalidInput, match="vocab_size"):
        TextTokenizer(ModelFolder(tmp_path, small, EMBED, 8, False, (), "", ""), False)


def test_many_threads_may_prepare_at_once(tmp_path: Path) -> None:
    one = tokenizer(tmp_path)
    texts = [" ".join("abc"[k % 3] for k in range(n % 5)) for n in range(200)]
    expected = listed(one.rows(texts))
    with ThreadPoolExecutor(8) as pool:
        assert all(listed(rows) == expected for rows in pool.map(one.rows, [texts] * 40))


def test_slices_are_views_and_concat_puts_them_back(tmp_path: Path) -> None:
    rows = tokenizer(tmp_path).rows(["a b", "c", "", "a b c a b c a", "b"])
    parts = [rows.slice(0, 2), rows.slice(2, 2), rows.slice(2, 5)]
    assert all(part.ids is rows.ids for part in parts)
    assert [len(part) for part in parts] == [2, 0, 3]
    whole = concat(parts)
    assert listed(whole) == listed(rows)
    assert whole.truncated.tolist() == rows.truncated.tolist()
    assert len(concat([])) == 0
    assert concat([rows]) is rows


def test_padding_fills_the_named_rows_only(tmp_path: Path) -> None:
    rows = tokenizer(tmp_path).rows(["a b", "c", "a"]).slice(1, 3)
    batch = rows.padded(np.array([1, 0]), 9)
    assert batch["input_ids"].tolist() == [[1, 4, 2], [1, 6, 2]]
    wide = tokenizer(tmp_path, RerankingTask("sigmoid")).rows([("a", "b"), ("a b", "b")]).padded(np.array([0, 1]), 9)
    assert wide["input_ids"].tolist() == [[1, 4, 2, 5, 2, 9], [1, 4, 5, 2, 5, 2]]
    assert wide["type_ids"].tolist() == [[0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1]]
    assert wide["lengths"].tolist() == [5, 6]


def test_a_long_tailed_corpus_wastes_less_than_three_percent() -> None:
    lengths = np.clip(np.random.default_rng(1).lognormal(3.9, 0.8, 4000), 3, 256).astype(np.int64)
    for lanes in (1, 2, 16):
        calls = pack_rows(lengths, lanes)
        assert calls.padding_waste < 0.03
        assert lengths.sum() / len(calls) > 400


def test_a_small_call_is_spread_over_the_lanes() -> None:
    assert len(pack_rows(np.full(8, 16), streams=4)) == 4
    assert len(pack_rows(np.full(1, 16), streams=4)) == 1
    assert len(pack_rows(np.full(8, 16), streams=1)) == 1
    assert len(pack_rows(np.empty(0, np.int64), streams=2)) == 0


def changed(path: Path, change: Callable[[dict[str, Any]], Any], task: Task = EMBED, **more: Any) -> TextTokenizer:
    """The tokenizer after a change of its file."""
    tokenizer(path)
    content = json.loads((path / "tokenizer.json").read_text())
    change(content)
    (path / "tokenizer.json").write_text(json.dumps(content))
    architecture = dataclasses.replace(BERT, **more)
    return TextTokenizer(
        ModelFolder(path, architecture, task, 8, False, (), "", ""), not isinstance(task, EmbeddingTask)
    )


@pytest.mark.parametrize("number", [len(WORDS), 1_000_000, 4_000_000_000])
def test_a_template_s_token_outside_the_vocabulary_is_refused(tmp_path: Path, number: int) -> None:
    with pytest.raises(InvalidInput, match=f"{number} .*below {len(WORDS)}, the vocab_size"):
        changed(tmp_path, lambda content: content["post_processor"]["special_tokens"]["[CLS]"].update(ids=[number]))


def test_padding_outside_the_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="pad_token_id"):
        changed(tmp_path, lambda _: None, pad_id=len(WORDS))


def test_a_batch_never_holds_what_the_network_has_no_vector_for(tmp_path: Path) -> None:
    typed = template("[CLS]:0", "$A:0", "[SEP]:0", "$B:7", "[SEP]:7")
    pairs = changed(tmp_path, lambda content: content["post_processor"].update(pair=typed), RerankingTask("sigmoid"))
    with pytest.raises(InvalidInput, match=r"row 0.*below 2: the model"):
        pairs.rows([("a", "b")])
    texts = tokenizer(tmp_path)
    texts._vocabulary = 6  # as if the checks at the load had let it through
    with pytest.raises(InvalidInput, match=r"row 1.*token 6.*below 6: the model"):
        texts.rows(["a b", "a c", "a"])


def test_a_panic_of_the_library_over_a_damaged_file_is_broken(tmp_path: Path) -> None:
    charsmap = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    with pytest.raises(Broken, match=r"tokenizer\.json is damaged"):
        changed(tmp_path, lambda content: content.update(normalizer=charsmap))
    with pytest.raises(Broken, match=r"tokenizer\.json is damaged"):
        changed(tmp_path, lambda content: content["post_processor"].update(special_tokens={}))


class Panic(BaseException):
    """As pyo3's, which is no Exception."""


def test_a_panic_over_a_text_is_that_row_s_error(tmp_path: Path) -> None:
    class Panicking:
        def encode_batch_fast(self, texts: list[str]) -> Any:
            if "b" in texts:
                raise Panic("no entry found for key")
            return [None] * len(texts)

    texts = tokenizer(tmp_path)
    texts._tokenizer = Panicking()
    with pytest.raises(InvalidInput, match=r"row 2.*that the tokenizer accepts \(no entry"):
        texts.rows(["a", "c", "b", "b"])


def test_a_copy_in_another_process_makes_batches_of_words_that_it_knows(tmp_path: Path) -> None:
    made = tokenizer(tmp_path)
    copy = pickle.loads(pickle.dumps(made))  # noqa: S301 - our own
    texts = ["a b c", "b", "", "c c a", "a " * 50, [4, 5]]
    for _ in range(3):
        found, expected = copy.rows(texts), made.rows(texts)
        assert listed(found) == listed(expected)
        assert found.truncated.tolist() == expected.truncated.tolist()


def test_only_a_jobs_windows_are_for_the_librarys_pool(tmp_path: Path) -> None:
    texts, sizes = tokenizer(tmp_path), list[int]()
    real = texts._tokenizer

    class Counting:
        def encode_batch_fast(self, given: list[str]) -> Any:
            sizes.append(len(given))
            return real.encode_batch_fast(given)

    few = texts.rows(["a", "b c", "c"])
    texts._tokenizer = Counting()
    assert listed(texts.rows(["a", "b c", "c"])) == listed(few)
    assert sizes == [1, 1, 1]
    assert len(texts.rows(["a"] * 2048)) == 2048
    assert sizes[3:] == [2048]


def test_token_ids_of_the_callers_own_are_used_as_they_are(tmp_path: Path) -> None:
    made = tokenizer(tmp_path)
    rows = made.rows([[1, 4, 5, 2], "c", [4] * 8, [5] * 9, [7]])
    assert listed(rows) == [[1, 4, 5, 2], [1, 6, 2], [4] * 8, [5] * 8, [7]]
    assert rows.truncated.tolist() == [False, False, False, True, False]
    prompted = tokenizer(tmp_path, prompts=EncoderPrompts({"query": "a "}, "query"))
    assert listed(prompted.rows(["b", [1, 5, 2]])) == [[1, 4, 5, 2], [1, 5, 2]]


def test_a_classifiers_token_ids_are_of_its_first_text(tmp_path: Path) -> None:
    rows = tokenizer(tmp_path, ClassificationTask(("no", "yes"), False)).rows([("a", "b"), [1, 4, 2]])
    assert rows.type_ids is not None
    assert rows.type_ids.tolist() == [0, 0, 0, 1, 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ([len(WORDS)], r"row 1: 8 cannot be used.*from 0 to 7"),
        ([4, -1], r"row 1: -1 "),
        ([10**30], "row 1: 10+ "),
        ([4, True], "row 1: True "),
        ([4, "a"], "row 1: 'a' "),
        ([4, 5.0], "row 1: 5.0 "),
        ([], r"row 1: \[\] .*a text$"),
    ],
)
def test_token_ids_that_the_model_does_not_have_are_refused(tmp_path: Path, bad: list[Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        tokenizer(tmp_path).rows(["a", bad])


def test_a_bad_text_among_token_ids_is_named_by_its_own_row(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="row 2"):
        tokenizer(tmp_path).rows([[4], [5], "\ud800", "a"])


def test_token_ids_are_no_pair_of_texts(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"row 0.*a pair of texts"):
        tokenizer(tmp_path, RerankingTask("sigmoid")).rows([[1, 4, 2]])


def test_a_pickled_tokenizer_prepares_the_same_rows_and_sends_them_as_arrays(tmp_path: Path) -> None:
    original = tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").unlink()  # the file may be another one by then
    copy = pickle.loads(pickle.dumps(original))  # noqa: S301 - our own
    rows = copy.prepare(["a b", "c", "a b c a b c"]).slice(1, 3)
    sent = original.rows_of(copy.arrays_of(rows))
    expected = original.rows(["c", "a b c a b c"])
    for name in ("ids", "offsets", "truncated", "lengths"):
        np.testing.assert_array_equal(getattr(sent, name), getattr(expected, name))
