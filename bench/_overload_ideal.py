"""What an ideal queue does with the same arrivals: random ones make some requests late, however good a server is."""

from __future__ import annotations

from collections.abc import Sequence

from _load import WINDOW_S, Plan, due_times

Windows = Sequence[tuple[int, int]]


def ideal_windows(plan: Plan, capacity_per_s: float, alone_s: float) -> list[tuple[int, int]]:
    """Requests due, and inside the objective, in each window.

    One request after the other, each for 1 / capacity; one whose turn comes too late is refused, at no cost.
    """
    free_s, windows = -plan.warm_s, [[0, 0] for _ in range(round(plan.counted_s / WINDOW_S) + 1)]
    for due_s in due_times(plan):
        begins_s = max(free_s, due_s)
        admitted = begins_s - due_s + alone_s <= plan.slo_s
        if admitted:
            free_s = begins_s + 1 / capacity_per_s
        if due_s >= 0:
            window = windows[int(due_s / WINDOW_S)]
            window[0] += 1
            window[1] += admitted
    return [(due, inside) for due, inside in windows]


def inside_share(windows: Windows) -> float:
    """Of the requests due in them."""
    return sum(inside for _, inside in windows) / max(1, sum(due for due, _ in windows))


def back_after_s(windows: Windows, ends_s: float, share: float) -> float | None:
    """From the end of a burst until, from then on, so many are inside; None where they never are."""
    begins = round(ends_s / WINDOW_S)
    for at in range(begins, len(windows)):
        if sum(due for due, _ in windows[at:]) and inside_share(windows[at:]) >= share:
            return (at - begins) * WINDOW_S
    return None
