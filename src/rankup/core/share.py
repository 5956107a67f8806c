"""Dividing things among some that are to have equally many, or one more."""

from __future__ import annotations


def share(total: int, index: int, among: int) -> tuple[int, int]:
    """Half-open bounds of part ``index`` of ``total`` things; the first ``total % among`` parts hold one more."""
    size, more = divmod(total, among)
    start = index * size + min(index, more)
    return start, start + size + (index < more)
