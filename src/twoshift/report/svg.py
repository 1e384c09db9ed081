"""Markup as strings: every attribute and every text passes through one escape."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

__all__ = ["element", "escape", "number", "path_of", "shorten", "text_width"]

# XML has no way to write these, not even escaped
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

_FONT_PX = 12.0


def escape(text: str) -> str:
    return html.escape(_FORBIDDEN.sub("�", text), quote=True)


def number(value: float) -> str:
    """A coordinate: a tenth of a pixel is finer than any screen."""
    # adding zero turns -0.0 into 0.0
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")


def element(tag: str, *children: str, **attributes: str | float) -> str:
    """`class_` becomes `class`, `stroke_width` becomes `stroke-width`; children are markup already."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value) if isinstance(value, str) else number(value)}"'
        for name, value in attributes.items()
    )
    return f"<{tag}{written}>{''.join(children)}</{tag}>" if children else f"<{tag}{written}/>"


def path_of(points: Iterable[tuple[float, float]]) -> str:
    """The `d` of a polyline."""
    return "M" + "L".join(f"{number(x)},{number(y)}" for x, y in points)


def text_width(text: str, font_px: float = _FONT_PX) -> float:
    """An estimate, a little generous: there is no font to measure with here."""
    wide = sum(1 for character in text if character.isupper() or character in "mwMW%—…")
    thin = sum(1 for character in text if character in "iljt.,:;|!' ()")
    return font_px * (0.57 * len(text) + 0.14 * wide - 0.24 * thin)


def shorten(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
