"""vLLM in this process: its own scheduler, paged KV cache and prefix cache, a step at a time."""

from __future__ import annotations

import logging
import os
import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from twoshift.errors import Broken, DeviceLost, Inapplicable, InvalidInput
from twoshift.extras import needed
from twoshift.generation import FinishReason, GenerationParams, GenerationRequest, TokenLogprob
from twoshift.llm_ports import Emitted, LlmShape, Prompt, Prompts, Step
from twoshift.ports import RuntimeInfo
from twoshift.runtime.companions import hide_misfits
from twoshift.runtime.devices import usable_threads
from twoshift.runtime.llm.adapters import (
    LORA_MODULES,
    Adapter,
    check_adapter,
    lora_arguments,
    lora_requests,
    read_adapters,
)
from twoshift.runtime.llm.collecting import no_collections, skip_what_is_there
from twoshift.runtime.llm.folder import LlmFolder
from twoshift.runtime.llm.grammars import GRAMMARS, check_grammar, structured_outputs
from twoshift.runtime.llm.options import LlmOptions
from twoshift.runtime.llm.precision import (
    allow_children,
    ask_for_batch_invariance,
    check_batch_invariance,
    checked_device,
    chosen_gpus,
    chosen_precision,
    device_name,
    gpu_capability,
    precision_arguments,
)
from twoshift.runtime.llm.prompts import PromptMaker
from twoshift.runtime.llm.step_watch import StepWatch
from twoshift.runtime.llm.tool_calls import CallReader, ToolCalls, check_parser
from twoshift.runtime.tokenization import TextTokens
from twoshift.types import Tensor

__all__ = ["VllmRuntime", "engine_arguments", "load_vllm"]

OUTPUTS = ("text", "finish_reason", "output_tokens")
_LIVE, _BACKGROUND = 0, 1  # vLLM's priorities: the lower one goes first, and is put back last
_GIB = 1 << 30
_CPU_CONTEXT, _CPU_KV_BYTES, _CPU_BLOCK = 2048, _GIB, 32
_STEP_TOKENS = {"cpu": 512, "cuda": 8192}
_SEQUENCES = {"cpu": 64, "cuda": 256}
_SEEDS = 1 << 62  # vLLM takes -1 for none
_SCHEMAS = 64  # that are known to be good
_PAUSE_S = 0.001  # while a schema is compiled in another thread, and nothing can be run
_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # its core here: what is let in is decided before every step
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "GOMP_SPINCOUNT": "10000",  # threads that wait must not keep the cores from who shares them
    "TORCH_CPP_LOG_LEVEL": "ERROR",  # vLLM binds memory to a NUMA node with a warning that nobody can act on
    "HF_HUB_OFFLINE": "1",  # nothing is downloaded from a hub here
}


def load_vllm(folder: LlmFolder, name: str, options: LlmOptions) -> VllmRuntime:
    """The model of a folder in vLLM; raises InvalidInput where it cannot be used, Broken where it does not load."""
    adapters = read_adapters(options.adapters, folder)
    cuda = checked_device(options, folder.quantisation)
    if options.batch_invariant:
        ask_for_batch_invariance()
    if options.tensor_parallel > 1:
        allow_children()
    for key, value in _ENVIRONMENT.items():
        os.environ.setdefault(key, value)
    if cuda is not None:
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", chosen_gpus(cuda, options.tensor_parallel))
    with no_collections(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its packages' own affairs
        return _loaded(folder, name, options, cuda, adapters)


def _loaded(
    folder: LlmFolder, name: str, options: LlmOptions, cuda: str | None, adapters: Sequence[Adapter]
) -> VllmRuntime:
    threads = usable_threads(options.threads)
    hide_misfits()
    logging.getLogger("vllm").setLevel(logging.ERROR)  # it warns before it looks at its own setting
    # A bar of one process needs no lock of several: its semaphore would outlive a worker that ends at once.
    needed("tqdm", "vllm", name).tqdm.set_lock(threading.RLock())
    vllm = needed("vllm", "vllm", name)
    torch = needed("torch", "vllm", name)
    if cuda is None:
        torch.set_num_threads(threads)
        _let_generators_go_back(torch)
    capability = gpu_capability(cuda is not None)
    if options.batch_invariant:
        check_batch_invariance(vllm, capability)
    precision = chosen_precision(options.precision, folder.quantisation, capability, torch)
    check_parser(options.tool_parser)
    engine = _engine(vllm, engine_arguments(folder, options, cuda is not None, precision, adapters), name)
    info = _info(engine, folder, name, device_name(cuda, threads, options), precision)
    runtime = VllmRuntime(engine, folder, info, options.tool_parser)
    if adapters:
        runtime.load_adapters(adapters)
    return runtime


def _let_generators_go_back(torch: Any) -> None:
    """What vLLM draws for a prompt that is not read to its end it takes back, which a CPU's generator cannot do.

    Nothing has been kept of such a sequence: it draws from its beginning again.
    """
    if hasattr(torch.Generator, "goes_back"):
        return

    class Generator(torch.Generator):
        goes_back = True

        def get_offset(self) -> int:
            return 0

        def set_offset(self, _offset: int) -> None:
            self.manual_seed(self.initial_seed())

    torch.Generator = Generator


def engine_arguments(
    folder: LlmFolder, options: LlmOptions, on_cuda: bool, precision: str, adapters: Sequence[Adapter] = ()
) -> dict[str, Any]:
    """As vLLM has them."""
    device = "cuda" if on_cuda else "cpu"
    context = options.context_tokens or min(folder.context_tokens, folder.context_tokens if on_cuda else _CPU_CONTEXT)
    sequences = options.max_sequences or _SEQUENCES[device]
    return {
        "model": str(folder.path),
        "max_model_len": context,
        **precision_arguments(precision),
        **({"tensor_parallel_size": options.tensor_parallel} if options.tensor_parallel > 1 else {}),
        "kv_cache_memory_bytes": options.kv_bytes or (None if on_cuda else _CPU_KV_BYTES),
        "block_size": None if on_cuda else _CPU_BLOCK,
        "max_num_seqs": sequences,
        "max_num_batched_tokens": max(sequences, options.step_tokens or _STEP_TOKENS[device]),
        "enable_prefix_caching": True,
        "scheduling_policy": "priority",
        "async_scheduling": on_cuda,  # the next step is decided while the device runs the one before it
        "enforce_eager": not (on_cuda if options.compiled is None else options.compiled),
        "disable_log_stats": True,
        "trust_remote_code": False,
        "use_tqdm_on_load": False,
        "structured_outputs_config": {"backend": GRAMMARS},
        **lora_arguments(adapters, on_cuda),
    }


def _engine(vllm: Any, arguments: dict[str, Any], name: str) -> Any:
    from vllm.v1.engine.llm_engine import LLMEngine

    if not hasattr(vllm.EngineArgs, LORA_MODULES):
        arguments.pop(LORA_MODULES, None)
    skip_what_is_there()
    try:
        return LLMEngine.from_engine_args(vllm.EngineArgs(**arguments))
    except (ValueError, NotImplementedError) as error:
        raise InvalidInput("model", name, f"a model that vLLM {vllm.__version__} can run here ({error})") from error
    except Exception as error:
        raise Broken(f"vLLM {vllm.__version__} could not load {name}: {type(error).__name__}: {error}") from error


def _info(engine: Any, folder: LlmFolder, name: str, device: str, precision: str) -> RuntimeInfo:
    return RuntimeInfo(
        model=name,
        checksum=folder.checksum,
        runtime="vllm",
        device=device,
        precision=precision,
        max_row_tokens=engine.vllm_config.model_config.max_model_len,
        outputs=OUTPUTS,
        live_stream=True,
        inputs=(Tensor("prompt", "text"),),
    )


class VllmRuntime:
    """vLLM's engine, driven from outside; one thread owns it."""

    def __init__(self, engine: Any, folder: LlmFolder, info: RuntimeInfo, tool_parser: str | None = None) -> None:
        self.info, self.folder = info, folder
        self._adapters: dict[str, Any] = {}  # as vLLM has them, by name
        self._engine = engine
        config = engine.vllm_config
        self.shape = LlmShape(
            context_tokens=config.model_config.max_model_len,
            kv_tokens=config.cache_config.num_gpu_blocks * config.cache_config.block_size,
            block_tokens=config.cache_config.block_size,
            step_tokens=config.scheduler_config.max_num_batched_tokens,
            max_sequences=config.scheduler_config.max_num_seqs,
            vocabulary=config.model_config.get_vocab_size(),
        )
        self._prompts = PromptMaker(folder.path, self.shape.context_tokens, self.shape.vocabulary)
        self._calls = ToolCalls(tool_parser, self._prompts.tokenizer)
        self._readers: dict[int, CallReader] = {}  # by key: of those that may call tools
        self._scheduler = engine.engine_core.engine_core.scheduler
        self._keys: dict[str, int] = {}  # by vLLM's own ids
        self._own_ids: dict[int, str] = {}  # by key
        self._steps = StepWatch(self._scheduler, self._keys)
        self._quiet: dict[int, list[int]] = {}  # tokens, by key: of those whose text nobody reads as it comes
        self._structured = set[int]()  # keys of those that keep to a schema
        self._check_schema = lru_cache(_SCHEMAS)(check_grammar)  # what is refused is not kept
        engine.input_processor.structured_outputs_config = None  # else each is checked again, between two steps

    def load_adapters(self, adapters: Sequence[Adapter]) -> None:
        """Of an engine that was made for them; raises InvalidInput where vLLM refuses one, and is closed."""
        loaded = {each.name: each.loaded for each in adapters}
        self.info = replace(self.info, runtime="vllm-lora", adapters=loaded)  # slower steps: a profile of its own
        try:
            self._adapters = lora_requests(self._engine, adapters)
        except BaseException:
            self.close()
            raise

    def prepare(self, rows: Sequence[GenerationRequest]) -> Prompts:
        """Template and tokenise; raises InvalidInput, and TooLarge where a prompt leaves no token of the context."""
        forced = {id(row.tools): self._calls.schema(row.tools, self._check_schema) for row in rows if row.tools}
        for row in rows:
            check_adapter(row.adapter, self.info.model, self._adapters)
            self._check_biases(row.params)
            if forced.get(id(row.tools)) and row.params.json_schema is not None:
                raise Inapplicable("json_schema", True, "when `tool_choice` requires a tool call")
        for schema in {row.params.json_schema for row in rows} - {None}:
            self._check_schema(schema)
        return self._prompts.prepare([_forced(row, forced.get(id(row.tools))) for row in rows])

    def _check_biases(self, params: GenerationParams) -> None:
        most = self.shape.vocabulary
        wrong = next((token for token, _ in params.logit_bias if most is not None and token >= most), None)
        if wrong is not None and most is not None:
            raise InvalidInput("logit_bias", wrong, f"token ids from 0 to {most - 1} as keys")

    @property
    def tokens(self) -> TextTokens:
        """Its tokenizer."""
        return self._prompts.tokens

    def text_of(self, token_ids: Sequence[int]) -> str:
        """The text that these generated tokens are, without special ones."""
        return self._prompts.text_of(token_ids)

    def add(self, key: int, prompt: Prompt, live: bool) -> None:
        """Let it in; live ones go first. Raises InvalidInput where vLLM cannot take it."""
        tokens = {"prompt_token_ids": [*prompt.token_ids, *prompt.begun]}
        while self._steps.in_flight and not self._keys:
            self._engine.step()  # for sequences that are gone: the pause after it is no part of a step
        try:
            reader = self._calls.reader(prompt)
            quiet = (prompt.whole or not live) and reader is None and _is_quiet(prompt.params)
            params = sampling_params(prompt, reader is not None and reader.wants_special, quiet)
            adapter, priority = self._adapters.get(prompt.adapter), _LIVE if live else _BACKGROUND
            own = self._engine.add_request(str(key), tokens, params, lora_request=adapter, priority=priority)
        except Exception as error:  # it has errors of its own for what it does not take, and libraries below it
            if prompt.params.json_schema is not None:  # the rest was looked at before
                raise InvalidInput("json_schema", "this schema", f"a schema that vLLM supports ({error})") from error
            raise InvalidInput("request", "these parameters", f"parameters that vLLM accepts ({error})") from error
        self._keys[own], self._own_ids[key] = key, own
        if quiet:
            self._engine.output_processor.abort_requests([own], internal=True)  # it goes on in the core
            self._steps.quiet.add(own)
            self._quiet[key] = []
        if reader is not None:
            self._readers[key] = reader
        if prompt.params.json_schema is not None:
            self._structured.add(key)

    def abort(self, keys: Sequence[int]) -> None:
        """Forget them and free what they hold; unknown ones are ignored."""
        self._engine.engine_core.abort_requests([self._own_ids[key] for key in keys if key in self._quiet])
        self._engine.abort_request([str(key) for key in keys if key not in self._quiet])
        self._forget(keys)

    def step(self, prefill_tokens: int | None = None) -> Step:
        """Begin one forward pass over what is inside, and end the oldest; it reads so many tokens of each prompt.

        On a GPU two are on their way: the next is decided while the device runs the one before it.
        """
        if not self._keys:
            return Step(kv_use=self._kv_use())
        self._scheduler.scheduler_config.long_prefill_token_threshold = prefill_tokens or 0  # vLLM's own chunking
        try:
            outputs = self._engine.step()
        except Exception as error:  # its state is unknown: nothing that it holds can be trusted
            raise DeviceLost(f"vLLM failed in a step: {type(error).__name__}: {error}") from error
        ended, preempted = self._steps.taken()
        emitted = [self._read(_emitted(each, int(each.request_id) in self._structured)) for each in outputs]
        more = list[tuple[int, Sequence[int]]]()
        for each in ended.quiet:
            key = self._keys[each.request_id]
            told = self._quiet[key]
            if told and each.finish_reason is None:
                more.append((key, each.new_token_ids))
            else:
                emitted.append(self._first_or_last(key, each))
            told += each.new_token_ids
        self._forget([each.key for each in emitted if each.finish is not None or each.error is not None])
        if not ended.tokens and not self._steps.in_flight:
            time.sleep(_PAUSE_S)
        began = self._steps.begun()
        return Step(tuple(emitted), ended.tokens, ended.seconds, self._kv_use(), preempted, began, more)

    def close(self) -> None:
        """Give the device back, so that another model can be loaded in this process."""
        from vllm.distributed import destroy_distributed_environment, destroy_model_parallel

        self._engine.engine_core.shutdown()
        del self._engine, self._scheduler, self._steps
        destroy_model_parallel()
        destroy_distributed_environment()

    def _forget(self, gone: Sequence[int]) -> None:
        for key in gone:
            own = self._own_ids.pop(key, "")
            self._keys.pop(own, None)
            self._steps.quiet.discard(own)
            self._quiet.pop(key, None)
            self._structured.discard(key)
            self._readers.pop(key, None)

    def _first_or_last(self, key: int, output: Any) -> Emitted:
        """Of a quiet sequence: its whole text comes with the last of its tokens."""
        ids = tuple(output.new_token_ids)
        finish, error = _ending(None if output.finish_reason is None else str(output.finish_reason))
        text = "" if finish is None else self.text_of((*self._quiet[key], *ids))
        cached = 0 if output.prefill_stats is None else output.prefill_stats.num_cached_tokens
        return Emitted(key, text, ids, finish, cached, error)

    def _read(self, emitted: Emitted) -> Emitted:
        """With the calls that are in its text."""
        reader = self._readers.get(emitted.key)
        if reader is None or emitted.error is not None:
            return emitted
        try:
            text, calls = reader.more(emitted.text, emitted.token_ids, emitted.finish is not None)
        except Exception as error:  # a parser of vLLM's met a text that it was not made for
            self._engine.abort_request([str(emitted.key)])
            broken = Broken(f"the tool parser failed: {type(error).__name__}: {error}")
            return replace(emitted, finish=None, error=broken)
        return replace(emitted, text=text, tool_calls=calls)

    def _kv_use(self) -> float:
        return self._scheduler.kv_cache_manager.usage


def _is_quiet(params: GenerationParams) -> bool:
    """Whether nothing but its tokens is needed before it ends: no text to look for stop strings in."""
    return not params.stop and params.logprobs is None and params.json_schema is None


def sampling_params(prompt: Prompt, shows_special: bool = False, quiet: bool = False) -> Any:
    """As vLLM has them. A sequence that goes on draws with another seed: the same one would draw the same again."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    asked: GenerationParams = prompt.params
    return SamplingParams(
        max_tokens=prompt.max_tokens - len(prompt.begun),
        temperature=asked.temperature,
        top_p=asked.top_p,
        top_k=asked.top_k or 0,
        min_p=asked.min_p,
        logit_bias=dict(asked.logit_bias) or None,
        seed=None if asked.seed is None else (asked.seed + len(prompt.begun)) % _SEEDS,
        stop=list(asked.stop),
        presence_penalty=asked.presence_penalty,
        frequency_penalty=asked.frequency_penalty,
        repetition_penalty=asked.repetition_penalty,
        ignore_eos=asked.ignore_eos,
        logprobs=asked.logprobs,
        structured_outputs=structured_outputs(asked.json_schema),
        skip_special_tokens=not shows_special,
        output_kind=RequestOutputKind.DELTA,
        detokenize=not quiet,
    )


def _forced(row: GenerationRequest, schema: str | None) -> GenerationRequest:
    """Its text is the calls, and keeps to their schema."""
    return row if schema is None else replace(row, params=replace(row.params, json_schema=schema))


def _emitted(output: Any, structured: bool) -> Emitted:
    key, [answer] = int(output.request_id), output.outputs
    finish, error = _ending(answer.finish_reason if output.finished else None, structured)
    return Emitted(
        key,
        answer.text,
        tuple(answer.token_ids),
        finish,
        output.num_cached_tokens or 0,
        error,
        tuple(map(_logprob, answer.token_ids, answer.logprobs or ())),
        stopped_by=answer.stop_reason if isinstance(answer.stop_reason, str) else None,
    )


def _ending(reason: str | None, structured: bool = False) -> tuple[FinishReason | None, Exception | None]:
    """How a sequence has ended, as vLLM says it, or what it failed of; neither while it goes on."""
    if reason is None:
        return None, None
    if reason in ("stop", "length"):
        return FinishReason(reason), None
    if structured:
        accepted = "a schema that the model can complete: this schema reaches a point where no token is allowed"
        return None, InvalidInput("json_schema", "this schema", accepted)
    return None, Broken(f"vLLM ended the sequence: {reason}")


def _logprob(token_id: int, told: Any) -> TokenLogprob:
    """The likeliest first; vLLM tells the token's own beside them, wherever it stands."""
    own, ranked = told[token_id], sorted(told.values(), key=lambda each: each.rank)
    likeliest = tuple((each.decoded_token or "", each.logprob) for each in ranked)
    return TokenLogprob(own.decoded_token or "", own.logprob, likeliest)
