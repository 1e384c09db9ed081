"""The metrics of language models: under names of our own, and under those that vLLM's dashboards and scalers read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from twoshift.engine.llm import LlmStats
from twoshift.serve.deployments import Deployment
from twoshift.serve.llm.language_model import LanguageModel, is_language_model
from twoshift.serve.metrics import Histogram, counted
from twoshift.types import Lane

__all__ = ["llm_families", "llm_metrics"]

_PROMPT_TOKENS = "Prompt tokens, including cached tokens."
_LANED = (
    (
        "gauge",
        "waiting_sequences",
        "Waiting sequences. Live sequences wait for their first token, background sequences for admission.",
        "waiting",
    ),
    ("gauge", "running_sequences", "Running sequences.", "running"),
    ("counter", "finished_sequences", "Sequences that finished.", "finished"),
    ("counter", "failed_sequences", "Sequences that failed.", "failed"),
    ("counter", "cancelled_sequences", "Sequences that were cancelled.", "cancelled"),
    ("counter", "prompt_tokens", _PROMPT_TOKENS, "prompt_tokens"),
    ("counter", "cached_tokens", "Prompt tokens found in the prefix cache.", "cached_tokens"),
    ("counter", "output_tokens", "Tokens generated.", "output_tokens"),
)
_WHOLE = (
    ("gauge", "kv_use_ratio", "Share of the KV cache in use.", "kv_use"),
    ("gauge", "kv_tokens", "Capacity of the KV cache in tokens.", "kv_tokens"),
    ("counter", "steps", "Engine steps.", "steps"),
    ("counter", "preemptions", "Sequences preempted because the KV cache was full.", "preemptions"),
    ("counter", "requeued_sequences", "Background sequences preempted for live sequences.", "requeued"),
)
_HISTOGRAMS = (
    ("ttft_seconds", "Time from submission to the first token.", "ttft", "time_to_first_token_seconds"),
    (
        "tpot_seconds",
        "Time per output token after the first, averaged over a sequence.",
        "tpot",
        "time_per_output_token_seconds",
    ),
    ("sequence_seconds", "Time from submission to the last token.", "all", "e2e_request_latency_seconds"),
)
_VLLM_TPOT = "request_time_per_output_token_seconds"  # its newer name


def llm_metrics(models: Mapping[str, Deployment]) -> Iterator[Any]:
    """As ServerMetrics takes more."""
    backends = {name: model.backend for name, model in models.items()}
    found = {name: backend for name, backend in backends.items() if is_language_model(backend)}
    if not found:
        return
    yield from llm_families(found, {name: model.sequences() for name, model in found.items()})


def llm_families(models: Mapping[str, LanguageModel], stats: Mapping[str, LlmStats]) -> Iterator[Any]:
    """Under our names, then under vLLM's; without samples where there is no model."""
    yield from _own(models, stats)
    yield from _as_vllm(models, stats)


def _own(models: Mapping[str, LanguageModel], stats: Mapping[str, LlmStats]) -> Iterator[Any]:
    for kind, name, about, value in _LANED:
        samples = [
            (model, str(lane), getattr(each, value))
            for model, seen in stats.items()
            for lane, each in seen.lanes.items()
        ]
        yield kind, name, about, ("model", "lane"), samples
    for kind, name, about, value in _WHOLE:
        yield kind, name, about, ("model",), [(model, getattr(seen, value)) for model, seen in stats.items()]
    for name, about, key, _ in _HISTOGRAMS:
        samples = [
            (model, str(lane), *_told(each))
            for model, served in models.items()
            for lane, each in served.generated.histograms()[key].items()
        ]
        yield "histogram", name, about, ("model", "lane"), samples


def _as_vllm(models: Mapping[str, LanguageModel], stats: Mapping[str, LlmStats]) -> Iterator[Any]:
    """Live sequences alone, where a scaler acts on it; batch work that waits would make it add replicas."""
    label = ("model_name",)

    def each(value: Any) -> list[tuple[str, float]]:
        return [(name, value(seen)) for name, seen in stats.items()]

    def live(field: str) -> list[tuple[str, float]]:
        return each(lambda seen: getattr(seen.lanes[Lane.ONLINE], field))

    def summed(field: str) -> list[tuple[str, float]]:
        return each(lambda seen: sum(getattr(lane, field) for lane in seen.lanes.values()))

    yield "gauge", "vllm:num_requests_waiting", "Live requests that wait for their first token.", label, live("waiting")
    yield "gauge", "vllm:num_requests_running", "Running sequences.", label, summed("running")
    for name in ("kv_cache_usage_perc", "gpu_cache_usage_perc"):
        yield "gauge", f"vllm:{name}", "Share of the KV cache in use.", label, each(lambda seen: seen.kv_use)
    yield "counter", "vllm:prefix_cache_queries", _PROMPT_TOKENS, label, summed("prompt_tokens")
    yield (
        "counter",
        "vllm:prefix_cache_hits",
        "Prompt tokens found in the prefix cache.",
        label,
        summed("cached_tokens"),
    )
    yield "counter", "vllm:prompt_tokens", _PROMPT_TOKENS, label, summed("prompt_tokens")
    yield "counter", "vllm:generation_tokens", "Tokens generated.", label, summed("output_tokens")
    yield "counter", "vllm:num_preemptions", "Preempted sequences.", label, each(lambda seen: seen.preemptions)
    ended = [
        (name, reason, count)
        for name, model in models.items()
        for reason, count in model.generated.reasons()[Lane.ONLINE].items()
    ]
    yield "counter", "vllm:request_success", "Live requests answered.", ("model_name", "finished_reason"), ended
    for _, about, key, name in (*_HISTOGRAMS, ("", _HISTOGRAMS[1][1], "tpot", _VLLM_TPOT)):
        samples = [(model, *_told(served.generated.histograms()[key][Lane.ONLINE])) for model, served in models.items()]
        yield "histogram", f"vllm:{name}", about, label, samples


def _told(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    return counted(histogram.counts, histogram.bounds), histogram.total
