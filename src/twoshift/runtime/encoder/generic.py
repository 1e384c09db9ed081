"""Whatever else transformers loads, through its own code and torch; padded, on the CPU."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, assert_never, cast

import numpy as np
from numpy.typing import NDArray

from twoshift.errors import Broken, InvalidInput
from twoshift.ports import Prepared, RuntimeInfo
from twoshift.runtime.artifacts import needed
from twoshift.runtime.columns import Done
from twoshift.runtime.devices import cpu_device, usable_threads
from twoshift.runtime.encoder.answers import answer_width, columns_of, output_names
from twoshift.runtime.encoder.folder import ModelFolder
from twoshift.runtime.encoder.onnx_encoder import pack_rows, restored
from twoshift.runtime.encoder.pooling import Pooler
from twoshift.runtime.encoder.task import Classification, Embedding, Reranking
from twoshift.runtime.encoder.tokens import TextTokenizer, TokenRows, concat
from twoshift.runtime.failures import device_failures

__all__ = ["TransformersEncoder", "load_generic_encoder"]


def load_generic_encoder(folder: ModelFolder, name: str, threads: int | None = None) -> TransformersEncoder:
    """The folder's model in transformers, in fp32; raises InvalidInput where it does not load."""
    used = usable_threads(threads)
    torch = needed("torch", "torch", str(folder.path))
    model = _model(folder)
    torch.set_num_threads(used)
    tokenizer = TextTokenizer(folder, folder.takes_pairs and _names_types(model))
    info = RuntimeInfo(
        model=name,
        checksum=folder.checksum,
        runtime="torch",
        device=cpu_device(used),
        precision="fp32",
        max_row_tokens=folder.max_tokens,
        outputs=output_names(folder.task),
    )
    return TransformersEncoder(info, folder, tokenizer, model)


def _model(folder: ModelFolder) -> Any:
    torch, transformers = needed("torch", "torch", ""), needed("transformers", "torch", str(folder.path))
    kind = transformers.AutoModel
    if not isinstance(folder.task, Embedding):
        kind = transformers.AutoModelForSequenceClassification
    try:
        model = kind.from_pretrained(
            str(folder.path), local_files_only=True, trust_remote_code=False, use_safetensors=True, dtype=torch.float32
        )
    except Exception as error:  # whatever a model's code raises
        line = str(error).strip().partition("\n")[0][:300]
        accepted = f"a model that transformers {transformers.__version__} loads ({line})"
        raise InvalidInput("model", str(folder.path), accepted) from error
    return model.eval()


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
        self._pooler = Pooler(folder.task, hidden) if isinstance(folder.task, Embedding) else None
        self._tokenizer = tokenizer
        self._model: Any = model
        self._torch = needed("torch", "torch", info.model)

    def prepare(self, rows: Sequence[Any]) -> TokenRows:
        """Texts, or pairs of texts, as tokens; any thread may call it."""
        return self._tokenizer.rows(rows)

    def launch(self, parts: Sequence[Prepared], live: bool = False) -> Done:
        """Run one call over the rows of all parts; the device has one queue, so `live` changes nothing."""
        if self._model is None:
            raise Broken(f"{self.info.model} is closed")
        rows = concat(cast("Sequence[TokenRows]", parts))
        calls = pack_rows(rows.lengths, lanes=1)
        with device_failures():
            answers = [self._run(rows.padded(call, self._pad_id)) for call in calls]
        return Done(columns_of(self._task, restored(calls, answers, self._width)))

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
        with torch.inference_mode():
            answer = self._activated(self._model(**given)[0]).numpy()
        return answer if self._pooler is None else self._pooler(answer, lengths)

    def _activated(self, first: Any) -> Any:
        match self._task:
            case Embedding():
                return first
            case Classification(multi_label=multi_label):
                return first.sigmoid() if multi_label else first.softmax(-1)
            case Reranking(activation=activation):
                return first if activation == "identity" else getattr(self._torch.nn.functional, activation)(first)
            case _:
                assert_never(self._task)
