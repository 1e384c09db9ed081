"""Where a request's time goes."""

from __future__ import annotations

import msgspec

__all__ = ["STAGES", "Stages"]

STAGES = ("admit", "lookup", "prepare", "queue", "forward", "finish")

_HEADER = b", ".join(b"%b;dur=%%.3f" % name.encode() for name in STAGES) + b', batch;desc="%d", version;desc="%b"'


class Stages(msgspec.Struct):
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
        return _HEADER % (
            1e3 * self.admit, 1e3 * self.lookup, 1e3 * self.prepare, 1e3 * self.queue, 1e3 * self.forward,
            1e3 * self.finish, self.call_rows, version.encode(),
        )  # fmt: skip
