"""Numbers as a line of eighths of blocks."""

from __future__ import annotations

from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float | None], width: int, most: float | None = None) -> str:
    """The last ``width`` values, on the right; a value that is not known is a blank.

    ``most`` is the value of a whole block; without it, the greatest one.
    """
    shown = list(values)[-width:]
    known = [one for one in shown if one is not None]
    top = most if most is not None else max(known, default=0.0)
    blocks = [
        " " if one is None else _BLOCKS[0] if top <= 0 else _BLOCKS[max(0, min(7, round(7 * one / top)))]
        for one in shown
    ]
    return "".join(blocks).rjust(width)
