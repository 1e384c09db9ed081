"""A folder's tokenizer, read as transformers reads it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twoshift.errors import Broken, TwoshiftError
from twoshift.extras import needed
from twoshift.runtime.encoder.fields import Fields
from twoshift.runtime.encoder.folder import ModelFolder
from twoshift.runtime.load_limit import loading_step

__all__ = ["damaged", "read_folder_tokenizer", "read_tokenizer"]


@contextlib.contextmanager
def damaged(path: Path) -> Iterator[None]:
    """What the library raises over a damaged file becomes Broken; its panics are no Exception."""
    try:
        yield
    except (TwoshiftError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        told = f"is damaged ({str(error)[:200]}); expected the file of a fast tokenizer"
        raise Broken(f"{path} {told}") from error


def read_folder_tokenizer(folder: ModelFolder) -> Any:
    """The tokenizer with the folder's settings: cut at the model's length, never padded."""
    loading_step(f"reading {folder.tokenizer}")
    tokenizer = read_tokenizer(folder.path, folder.do_lower_case)
    with damaged(folder.tokenizer):
        if not folder.special_tokens:
            tokenizer.post_processor = None
        tokenizer.enable_truncation(folder.max_tokens, strategy="longest_first")
    return tokenizer


def read_tokenizer(path: Path, do_lower_case: bool) -> Any:
    """A folder's tokenizer, which never pads; raises Broken."""
    tokenizers = needed("tokenizers", "encoder", str(path))
    with damaged(path / "tokenizer.json"):
        tokenizer = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
        _set_case(tokenizer, tokenizers, path, do_lower_case)
        tokenizer.no_padding()
    return tokenizer


def _set_case(tokenizer: Any, tokenizers: Any, path: Path, do_lower_case: bool) -> None:
    normalizers = tokenizers.normalizers
    own = tokenizer.normalizer
    config = Fields.read_if_there(path / "tokenizer_config.json")
    if isinstance(own, normalizers.BertNormalizer):
        # transformers lets tokenizer_config.json overrule tokenizer.json here
        own.lowercase = config.flag("do_lower_case", own.lowercase)
        own.handle_chinese_chars = config.flag("tokenize_chinese_chars", own.handle_chinese_chars)
        if "strip_accents" in config:
            own.strip_accents = config.flag("strip_accents")
        tokenizer.normalizer = own
    if do_lower_case and not _lowers(json.loads(tokenizer.to_str()).get("normalizer")):
        rest = [tokenizer.normalizer] if tokenizer.normalizer else []
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *rest])


def _lowers(normalizer: dict[str, Any] | None) -> bool:
    """Whether a normalizer, or one in its sequence, lowers the text already."""
    if normalizer is None:
        return False
    inner = normalizer.get("normalizers", ())
    lowers = normalizer["type"] == "Lowercase" or bool(normalizer.get("lowercase"))
    return lowers or any(map(_lowers, inner))
