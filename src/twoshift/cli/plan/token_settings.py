"""What `plan tokens` is asked: the rate of a device, or what it follows from; and the levers to try."""

from __future__ import annotations

from typing import Annotated

import msgspec

from twoshift.cli.plan.curves import StoredProfile
from twoshift.cli.plan.settings import PRECISIONS, KnownDevice
from twoshift.declare import setting
from twoshift.policy.plan.generation import Conversation
from twoshift.policy.plan.tokens import QUANTISATION_SPEEDUP
from twoshift.values import choice, count, millis, share, whole

__all__ = ["TokenSettings"]

_BELOW_ONE = share(one=False)


class TokenSettings(msgspec.Struct, frozen=True, kw_only=True):
    """In the order of its options."""

    tokens_per_s: Annotated[
        float | None,
        setting(
            "Number of tokens that one busy device generates per second.",
            count(),
            "--tokens-per-s",
            "--tokens-per-second",
        ),
    ] = None
    profile: StoredProfile = None
    sequences: Annotated[
        int | None,
        setting(
            "Number of concurrent sequences.",
            whole(most=4096),
            shown="16 with --profile; with --device, as many as fit into its memory",
        ),
    ] = None
    prompt_tokens: Annotated[float, setting("With --profile or --device: tokens of a prompt.", count(least=1))] = 256
    answer_tokens: Annotated[float, setting("With --profile or --device: tokens of an answer.", count(least=1))] = 128
    cached_tokens: Annotated[
        float,
        setting(
            "Tokens of each prompt that are in the prefix cache; --prompt-tokens does not count them.", count(zero=True)
        ),
    ] = 0
    step_tokens: Annotated[
        int | None,
        setting("Maximum number of tokens that one engine step processes.", whole(), shown="8192, or 512 on a CPU"),
    ] = None
    device: KnownDevice = None
    devices: Annotated[int, setting("With --device: number of devices that share the model.", whole(most=64))] = 1
    model: Annotated[
        str | None,
        setting(
            "With --device: language model that sets --params, --layers, --kv-heads and --head-dim: smollm or a model "
            "folder."
        ),
    ] = None
    layers: Annotated[int | None, setting("With --device and --params: number of layers.", whole())] = None
    kv_heads: Annotated[int | None, setting("With --device and --params: number of key-value heads.", whole())] = None
    head_dim: Annotated[
        int | None, setting("With --device and --params: dimension of one attention head.", whole())
    ] = None
    precision: Annotated[str, setting("With --device: precision of weights and arithmetic.", choice(PRECISIONS))] = (
        "bf16"
    )
    kv_precision: Annotated[str, setting("With --device: precision of the KV cache.", choice(PRECISIONS))] = "bf16"
    utilisation: Annotated[float, setting("Share of the time in which the device is busy.", share(zero=False))] = 1
    overhead_ms: Annotated[
        float | None,
        setting(
            "Part of a model call's time that does not depend on its number of rows, in milliseconds; used with "
            "--item-ms to compare two batch sizes.",
            millis(True),
        ),
    ] = None
    item_ms: Annotated[
        float | None,
        setting("Time that each row adds to a model call, in milliseconds; used with --overhead-ms.", millis()),
    ] = None
    batch_from: Annotated[
        int | None, setting("Smaller batch size of the comparison, in rows per call; used with --batch-to.", whole())
    ] = None
    batch_to: Annotated[
        int | None, setting("Larger batch size of the comparison, in rows per call; used with --batch-from.", whole())
    ] = None
    quantisation: Annotated[
        str | None, setting("Precision of a quantised model to compare with.", choice(tuple(QUANTISATION_SPEEDUP)))
    ] = None
    quantisation_speedup: Annotated[
        float | None, setting("Measured speed-up of the quantised model, as a factor such as 1.5.", count())
    ] = None
    params: Annotated[
        float | None, setting("Number of parameters of the model; used with --device or --to-params.", count())
    ] = None
    to_params: Annotated[
        float | None,
        setting(
            "Number of parameters of a smaller model to compare with; for a mixture of experts, its active parameters.",
            count(),
            "--to-params",
            "--active-params",
        ),
    ] = None
    padding: Annotated[
        float | None,
        setting(
            "Share of padding among the tokens of your present batches, to compare with batches without padding.",
            _BELOW_ONE,
        ),
    ] = None
    spot_discount: Annotated[
        float | None, setting("Spot discount, as a share of the price, such as 60%.", _BELOW_ONE)
    ] = None

    @property
    def asked(self) -> Conversation:
        """What each sequence is."""
        return Conversation(self.prompt_tokens, self.answer_tokens, self.cached_tokens)
