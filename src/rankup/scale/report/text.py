"""Names and numbers as text that no format misreads."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence

_BIDI = {chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def plain(text: object) -> str:
    """``text`` in one line of characters that XML, HTML and LaTeX can hold.

    Control characters, lone surrogates and marks that turn the direction of what follows become �.
    """
    return "".join(
        " "
        if char in "\n\t\r"
        else "�"
        if char in _BIDI or unicodedata.category(char) in ("Cc", "Cs", "Cn")
        else char
        for char in str(text)
    ).strip()


def number(value: object) -> float:
    """A number of a record; NaN if it is absent or something else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def short(value: float) -> str:
    """Three significant digits, thousands separated: ``0.0123``, ``1.7``, ``1,234``, ``2.5e+18``."""
    if not math.isfinite(value):
        return "–"
    return f"{value:,.0f}" if 100 <= abs(value) < 1e15 else f"{value:.3g}"


def milliseconds(seconds: float) -> str:
    """``34.2 ms``, ``187 ms``, ``2.1 s``."""
    return f"{short(1000 * seconds)} ms" if seconds < 0.9995 else f"{short(seconds)} s"


def percent(share: float) -> str:
    """``18 %``; one digit after the point below 10 %, two where shares of nearly 1 differ by little."""
    value = 100 * share
    digits = 0 if 10 <= abs(value) <= 90 else 1
    return f"{value:.{digits}f} %"


def clipped(text: str, most: int) -> str:
    """``text``, or its beginning and its end: names of runs often differ at the end."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2 - 1]}…{text[-(most - most // 2) :]}"


def listed(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def plural(count: int, noun: str) -> str:
    """``1 run``, ``2 runs``, ``2 processes``."""
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{ending}"
