"""What the benchmarks on a GPU share."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["torch_on_gpu"]


def torch_on_gpu() -> Any:
    """PyTorch; ends the program, saying so, where there is no GPU for it."""
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available():
        print("skipped: this benchmark needs PyTorch and an NVIDIA GPU")
        sys.exit(0)
    return torch
