"""The network's numbers as the columns that a caller sees."""

from __future__ import annotations

from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from twoshift.ports import Columns, RuntimeInfo
from twoshift.runtime.encoder.folder import ModelFolder
from twoshift.runtime.encoder.task import (
    ClassificationTask,
    Dense,
    EmbeddingTask,
    Normalize,
    RegressionTask,
    RerankingTask,
    Task,
)
from twoshift.types import Tensor

__all__ = ["answer_width", "columns_of", "encoder_info"]


def encoder_info(
    folder: ModelFolder, name: str, runtime: str, device: str, precision: str, *, pads: bool = True
) -> RuntimeInfo:
    """What is known of an encoder once it is loaded."""
    return RuntimeInfo(
        model=name,
        checksum=folder.checksum,
        runtime=runtime,
        device=device,
        precision=precision,
        max_row_tokens=folder.max_tokens,
        outputs=_outputs(folder.task),
        inputs=_inputs(folder.task),
        prompts=folder.prompts.texts,
        default_prompt_name=folder.prompts.default_name,
        classes={"scores": folder.task.labels} if isinstance(folder.task, ClassificationTask) else {},
        pads=pads,
        can_split=isinstance(folder.task, EmbeddingTask | ClassificationTask),
        normalises=isinstance(folder.task, EmbeddingTask) and Normalize() in folder.task.steps[-1:],
    )


def _inputs(task: Task) -> tuple[Tensor, ...]:
    """What a row has: a text, or a query and a text."""
    text = Tensor("text", "text")
    return (Tensor("query", "text"), text) if isinstance(task, RerankingTask) else (text,)


def _outputs(task: Task) -> tuple[str, ...]:
    """The names of a task's columns."""
    match task:
        case EmbeddingTask():
            return ("embedding",)
        case ClassificationTask():
            return ("label", "scores")
        case RerankingTask():
            return ("score",)
        case RegressionTask():
            return ("prediction",)
        case _:
            assert_never(task)


def answer_width(task: Task, hidden: int) -> int:
    """How many numbers a row's answer has, where the network's states have `hidden`."""
    match task:
        case EmbeddingTask():
            dense = [step.outputs for step in task.steps if isinstance(step, Dense)]
            width = dense[-1] if dense else hidden * len(task.poolings)
            return min(width, task.truncate_dim or width)
        case ClassificationTask():
            return len(task.labels)
        case RerankingTask() | RegressionTask():
            return 1
        case _:
            assert_never(task)


def columns_of(task: Task, answer: NDArray[np.float32]) -> Columns:
    """`embedding` [rows, width]; or `label` [rows] and `scores` [rows, labels]; or `score` or `prediction` [rows]."""
    match task:
        case EmbeddingTask():
            return {"embedding": answer}
        case ClassificationTask():
            labels = np.array(task.labels)
            return {"label": labels[answer.argmax(axis=1)], "scores": answer}
        case RerankingTask():
            return {"score": answer[:, 0]}
        case RegressionTask():
            return {"prediction": answer[:, 0]}
        case _:
            assert_never(task)
