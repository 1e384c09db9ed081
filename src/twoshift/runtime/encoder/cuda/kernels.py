"""The sums and norms between the matrix products, fused into one kernel each where Triton is there."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

triton: Any = None
tl: Any = None
with contextlib.suppress(ImportError):  # a build of PyTorch without it
    triton, tl = importlib.import_module("triton"), importlib.import_module("triton.language")

__all__ = ["Norm", "add_norm", "embed_norm", "fused"]


class Norm:
    """A layer normalisation's own numbers, in fp32."""

    __slots__ = ("bias", "eps", "weight")

    def __init__(self, weight: Tensor, bias: Tensor, eps: float) -> None:
        self.weight, self.bias, self.eps = weight, bias, eps

    def __call__(self, given: Tensor, dtype: torch.dtype) -> Tensor:
        return functional.layer_norm(given, self.weight.shape, self.weight, self.bias, self.eps).to(dtype)


def add_norm(given: Tensor, skip: Tensor, norm: Norm) -> Tensor:
    """norm(given + skip), summed in fp32."""
    if not (given.is_cuda and fused()):
        return norm(given.float() + skip.float(), given.dtype)
    result = torch.empty_like(given)
    tokens, width = given.shape
    _kernels().add_norm[(tokens,)](
        given, skip, norm.weight, norm.bias, result, width, norm.eps, BLOCK=triton.next_power_of_2(width)
    )
    return result


def embed_norm(tables: list[tuple[Tensor, Tensor]], norm: Norm) -> Tensor:
    """norm(the sum of one row of each table a token); `tables` are (table, index of each token)."""
    (words, ids), (positions, places), *rest = tables
    if not (words.is_cuda and fused()):
        return norm(sum(table[index.long()].float() for table, index in tables), words.dtype)  # type: ignore[arg-type]
    kinds, types = rest[0] if rest else (words, ids)
    tokens, width = ids.shape[0], words.shape[1]
    result = torch.empty(tokens, width, dtype=words.dtype, device=words.device)
    _kernels().embed_norm[(tokens,)](
        words, ids, positions, places, kinds, types, norm.weight, norm.bias, result, width, norm.eps,
        TYPED=bool(rest), BLOCK=triton.next_power_of_2(width),
    )  # fmt: skip
    return result


@functools.cache
def fused() -> bool:
    """Whether kernels can be built here: Triton needs a C compiler besides itself."""
    if triton is None or not torch.cuda.is_available():
        return False
    try:
        ones = torch.ones(2, 16, device="cuda")
        _kernels().add_norm[(2,)](ones, ones, ones[0], ones[0], torch.empty_like(ones), 16, 1e-5, BLOCK=16)
        torch.cuda.synchronize()
    except Exception:  # whatever the compiler, or its absence, raises
        return False
    return True


class _Kernels:
    def __init__(self, add_norm: Any, embed_norm: Any) -> None:
        self.add_norm, self.embed_norm = add_norm, embed_norm


@functools.cache
def _kernels() -> _Kernels:
    jit: Callable[[Any], Any] = triton.jit
    return _Kernels(jit(_add_norm), jit(_embed_norm))


def _add_norm(given, skip, weight, bias, result, width, eps, BLOCK: tl.constexpr):  # type: ignore[valid-type]  # noqa: N803
    start = tl.program_id(0).to(tl.int64) * width
    at = tl.arange(0, BLOCK)
    inside = at < width
    total = tl.load(given + start + at, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(skip + start + at, mask=inside, other=0.0).to(tl.float32)
    away = tl.where(inside, total - tl.sum(total) / width, 0.0)
    scaled = away * tl.rsqrt(tl.sum(away * away) / width + eps)
    normed = scaled * tl.load(weight + at, mask=inside, other=0.0) + tl.load(bias + at, mask=inside, other=0.0)
    tl.store(result + start + at, normed, mask=inside)


def _embed_norm(
    words, ids, positions, places, kinds, types, weight, bias, result, width, eps,
    TYPED: tl.constexpr, BLOCK: tl.constexpr,  # type: ignore[valid-type]  # noqa: N803
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < width
    total = tl.load(words + tl.load(ids + token).to(tl.int64) * width + at, mask=inside, other=0.0).to(tl.float32)
    place = tl.load(places + token).to(tl.int64)
    total += tl.load(positions + place * width + at, mask=inside, other=0.0).to(tl.float32)
    if TYPED:
        kind = tl.load(types + token).to(tl.int64)
        total += tl.load(kinds + kind * width + at, mask=inside, other=0.0).to(tl.float32)
    away = tl.where(inside, total - tl.sum(total) / width, 0.0)
    scaled = away * tl.rsqrt(tl.sum(away * away) / width + eps)
    normed = scaled * tl.load(weight + at, mask=inside, other=0.0) + tl.load(bias + at, mask=inside, other=0.0)
    tl.store(result + token * width + at, normed, mask=inside)
