"""Device time of each lane, and the minimum share that is owed to background work."""

from __future__ import annotations

from twoshift.policy.background_queue import BackgroundQueue
from twoshift.policy.lane_values import Call, LaneLimits, LaneUse, Slot
from twoshift.policy.typical_row import TypicalRow
from twoshift.types import Lane

__all__ = ["LaneAccounts"]


class LaneAccounts:
    """Charges each call to the lanes of its rows, in proportion to their tokens."""

    def __init__(self, limits: LaneLimits, background: BackgroundQueue) -> None:
        self._background, self._min_share = background, limits.min_share
        self._most_owed_s = min(limits.budget_s, 1.0)  # what was overpaid is remembered, both ways for about one call
        self.use = {lane: LaneUse() for lane in Lane}
        self.live_row = TypicalRow()
        self.owed_s = 0.0  # device time that owed blocks are short of (below 0: ahead); 0 when there are none

    def check_owed(self) -> None:
        """Reset what is owed if no background work waits for it."""
        if not self._background.owed_blocks:
            self.owed_s = 0.0

    def finished(self, call: Call, elapsed_s: float) -> None:
        """Charge each lane its share of the call, by tokens."""
        per_token_s = elapsed_s / max(1, call.size.tokens)
        background_tokens = 0
        for part in call.background:
            rows = part.stop - part.start
            background_tokens += part.tokens
            self._charge(part.lane, rows, part.tokens, per_token_s, rows if call.live else 0)
        if call.live:
            rows, tokens = len(call.live), call.size.tokens - background_tokens
            self._charge(Lane.ONLINE, rows, tokens, per_token_s, 0)
            self.live_row.observed(rows, tokens, call.size.squares * tokens / max(1, call.size.tokens))
        if self._background.owed_blocks and call.slot in (Slot.SHARED, Slot.WHOLE):
            short_s, most_s = self._min_share * elapsed_s - background_tokens * per_token_s, self._most_owed_s
            self.owed_s = min(most_s, max(-most_s, self.owed_s + short_s))

    def charge(self, lane: Lane, rows: int, tokens: int, elapsed_s: float) -> None:
        """Charge device time outside a planned call: the rows of a failed call ran again."""
        self._charge(lane, rows, tokens, elapsed_s / max(1, tokens), 0)

    def _charge(self, lane: Lane, rows: int, tokens: int, per_token_s: float, riding: int) -> None:
        use = self.use[lane]
        use.rows += rows
        use.tokens += tokens
        use.device_s += tokens * per_token_s
        use.riding_rows += riding
