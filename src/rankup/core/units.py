"""Durations and counts, for people."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """``0.42 s``, ``12.3 s``, ``2 min 05 s``, ``3 h 07 min``."""
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def rate(per_second: float) -> str:
    """``1,234`` above a hundred, ``12.3`` below."""
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.1f}"
