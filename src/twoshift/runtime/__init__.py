"""A model on a device: the user's own class, tabular models, ONNX graphs, encoders; libraries are imported late."""

from __future__ import annotations

from twoshift.runtime.load import load_model

__all__ = ["load_model"]
