"""Whatever else transformers loads, through its own code and torch; padded."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Iterator, Sequence
from typing import Any, assert_never, cast

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import Broken, UnusableModel, first_line
from twoshift.extras import needed
from twoshift.ports import Prepared, RuntimeInfo
from twoshift.runtime.columns import DoneCall
from twoshift.runtime.companions import needed_transformers
from twoshift.runtime.devices import cpu_device, usable_threads
from twoshift.runtime.encoder.answers import answer_width, columns_of, encoder_info
from twoshift.runtime.encoder.folder import ModelFolder
from twoshift.runtime.encoder.onnx_encoder import pack_rows, restored
from twoshift.runtime.encoder.pooling import Pooler
from twoshift.runtime.encoder.task import ClassificationTask, EmbeddingTask, RegressionTask, RerankingTask
from twoshift.runtime.encoder.tensor_names import check_finite, check_tensors, is_pooler, is_spare
from twoshift.runtime.encoder.tokens import TextTokenizer, TokenRows, concat
from twoshift.runtime.failures import device_failures
from twoshift.runtime.load_limit import loading_step

_T5 = ("t5", "mt5", "umt5")
__all__ = ["TransformersEncoder", "load_generic_encoder"]


def load_generic_encoder(
    folder: ModelFolder, name: str, threads: int | None = None, device: str = "cpu", precision: str = "fp32"
) -> TransformersEncoder:
    """The folder's model in transformers; raises UnusableModel where it does not load."""
    torch, transformers = needed("torch", "torch", str(folder.path)), needed_transformers("torch", str(folder.path))
    model = load_network(
        folder, network_class(folder, transformers), torch.bfloat16 if precision == "bf16" else torch.float32
    )
    used = usable_threads(threads)
    if device == "cpu":
        torch.set_num_threads(used)
    with device_failures():
        model = model.to(device)
    tokenizer = TextTokenizer(folder, folder.takes_pairs and _names_types(model))
    ran_on = cpu_device(used) if device == "cpu" else f"cuda: {torch.cuda.get_device_name(device)}"
    info = encoder_info(folder, name, "torch", ran_on, precision)
    return TransformersEncoder(info, folder, tokenizer, model)


def network_class(folder: ModelFolder, transformers: Any) -> Any:
    """The class of transformers that answers the folder's task."""
    if not isinstance(folder.task, EmbeddingTask):
        return transformers.AutoModelForSequenceClassification
    return body_class(folder, transformers)


def body_class(folder: ModelFolder, transformers: Any) -> Any:
    """The class without a head; of T5 and its kin the encoder alone."""
    return transformers.AutoModelForTextEncoding if folder.architecture.model_type in _T5 else transformers.AutoModel


def load_network(folder: ModelFolder, kind: Any, dtype: Any) -> Any:
    """The folder's network as a class of transformers loads it, every weight from its safetensors.

    Raises UnusableModel where it does not load, or where the file and the network are not the same.
    """
    torch, transformers = needed("torch", "torch", str(folder.path)), needed_transformers("torch", str(folder.path))
    loading_step(f"loading {folder.path} in transformers")
    try:
        with _quiet(transformers.utils.logging):
            model, found = kind.from_pretrained(
                str(folder.path), local_files_only=True, trust_remote_code=False, use_safetensors=True, dtype=dtype,
                output_loading_info=True, ignore_mismatched_sizes=True,
            )  # fmt: skip
    except Exception as error:  # whatever a model's code raises
        told = f"does not load in transformers {transformers.__version__}: {first_line(error)}"
        raise UnusableModel("model", str(folder.path), told) from error
    _check_loaded(folder, kind is not transformers.AutoModelForSequenceClassification, found)
    sums = {name: float(each.detach().sum(dtype=torch.float64)) for name, each in model.named_parameters()}
    check_finite(folder.path, [name for name, total in sums.items() if not math.isfinite(total)])
    return model.eval()


def _check_loaded(folder: ModelFolder, is_body: bool, found: dict[str, Any]) -> None:
    """A class makes up what it misses, and drops what it does not know."""
    others = () if not is_body or isinstance(folder.task, EmbeddingTask) else ("classifier",)  # its head is read apart
    check_tensors(
        folder.path,
        missing=[name for name in found["missing_keys"] if not (is_body and is_pooler(name))],
        unexpected=[name for name in found["unexpected_keys"] if not (is_spare(name) or name.split(".")[0] in others)],
        misshapen=found["mismatched_keys"],
    )


@contextlib.contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """Without its report of which of the folder's tensors this class leaves aside, and without its bars."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _names_types(model: Any) -> bool:
    return "token_type_ids" in inspect.signature(model.forward).parameters


class TransformersEncoder:
    """A Runtime over transformers' own forward pass."""

    def __init__(self, info: RuntimeInfo, folder: ModelFolder, tokenizer: TextTokenizer, model: Any) -> None:
        self.info = info
        self._task = folder.task
        self._pad_id = folder.architecture.pad_id
        hidden = int(getattr(model.config, "hidden_size", 0)) or folder.architecture.hidden
        self._width = answer_width(folder.task, hidden)
        self._pooler = Pooler(folder.task, hidden) if isinstance(folder.task, EmbeddingTask) else None
        self.row_preparer = tokenizer
        self._model: Any = model
        self._torch = needed("torch", "torch", info.model)

    def prepare(self, rows: Sequence[Any]) -> TokenRows:
        """Texts, or pairs of texts, as tokens; any thread may call it."""
        return self.row_preparer.rows(rows)

    def launch(self, parts: Sequence[Prepared], live: bool = False) -> DoneCall:
        """Run one call over the rows of all parts; the device has one queue, so `live` changes nothing."""
        if self._model is None:
            raise Broken(f"{self.info.model} is closed")
        rows = concat(cast("Sequence[TokenRows]", parts))
        calls = pack_rows(rows.lengths, streams=1)
        with device_failures():
            answers = [self._run(rows.padded(call, self._pad_id)) for call in calls]
        return DoneCall(columns_of(self._task, restored(calls, answers, self._width)))

    def close(self) -> None:
        """Let the model go."""
        self._model = None

    def _run(self, batch: dict[str, NDArray[np.int32]]) -> NDArray[np.float32]:
        torch = self._torch
        lengths = batch["lengths"]
        ids = torch.from_numpy(batch["input_ids"].astype(np.int64))
        given = {"input_ids": ids, "attention_mask": torch.arange(ids.shape[1]) < torch.from_numpy(lengths)[:, None]}
        given["attention_mask"] = given["attention_mask"].long()
        if "type_ids" in batch:
            given["token_type_ids"] = torch.from_numpy(batch["type_ids"].astype(np.int64))
        given = {name: values.to(self._model.device) for name, values in given.items()}
        with torch.inference_mode():
            answer = self._activated(self._model(**given)[0].float()).cpu().numpy()
        return answer if self._pooler is None else self._pooler(answer, batch)

    def _activated(self, first: Any) -> Any:
        match self._task:
            case EmbeddingTask() | RegressionTask():
                return first
            case ClassificationTask(multi_label=multi_label):
                return first.sigmoid() if multi_label else first.softmax(-1)
            case RerankingTask(activation=activation):
                return first if activation == "identity" else getattr(self._torch.nn.functional, activation)(first)
            case _:
                assert_never(self._task)
