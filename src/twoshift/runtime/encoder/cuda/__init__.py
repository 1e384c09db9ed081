"""Encoders on an NVIDIA GPU: packed without padding, in bf16, a stream for each lane."""
