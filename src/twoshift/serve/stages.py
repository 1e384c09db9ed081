"""Where a request's time goes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["STAGES", "Stages"]

STAGES = ("admit", "lookup", "prepare", "queue", "forward", "finish")


@dataclass(slots=True)
class Stages:
    """Seconds of each, and the call that it rode in."""

    admit: float = 0.0
    lookup: float = 0.0
    prepare: float = 0.0
    queue: float = 0.0
    forward: float = 0.0
    finish: float = 0.0
    call_rows: int = 0

    def header(self, version: str) -> bytes:
        """As Server-Timing has it: milliseconds; the call's rows and the version that answered besides."""
        return (
            f"admit;dur={1e3 * self.admit:.3f}, lookup;dur={1e3 * self.lookup:.3f}, "
            f"prepare;dur={1e3 * self.prepare:.3f}, queue;dur={1e3 * self.queue:.3f}, "
            f"forward;dur={1e3 * self.forward:.3f}, finish;dur={1e3 * self.finish:.3f}, "
            f'batch;desc="{self.call_rows}", version;desc="{version}"'
        ).encode()
