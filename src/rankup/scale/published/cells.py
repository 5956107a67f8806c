"""A cell of a published table as a number, or ``Unreadable``: the whole cell is understood, or nothing of it.

Numbers are in English notation: ``1,234.5``. A decimal comma, a range, a list and a remark in brackets are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rankup.core.units import TIME_UNITS

_NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
_SPREAD = rf"(?:\s*(?:±|\+/-)\s*{_NUMBER})?"
_WITH_UNIT = re.compile(rf"({_NUMBER}){_SPREAD}\s*(\D*)")
_COUNT = re.compile(
    r"(\d{1,3}(?:,\d{3})+|\d+)(?:\s*[x×]\s*(\d+))?(?:\s*(?:gpus?|devices?|processe?s?|ranks?|nodes?))?", re.I
)
_CLOCK = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{2}(?:\.\d+)?)")
_COMPOUND = re.compile(rf"(?:(\d+)\s*h)?\s*(?:(\d+)\s*m(?:in)?)?\s*(?:({_NUMBER})\s*s)?")
_PRECISIONS = {
    **dict.fromkeys(("float32", "single", "32"), "fp32"),
    **dict.fromkeys(("float16", "half", "16", "fp16 mixed"), "fp16"),
    **dict.fromkeys(("bfloat16", "bf16 mixed"), "bf16"),
    **dict.fromkeys(("amp", "mixed precision", "yes", "on", "true", "✓", "✔"), "mixed"),
    **dict.fromkeys(("no", "off", "false", "✗"), "not mixed"),
}


class Unreadable(ValueError):
    """Why a cell cannot be read."""


@dataclass(frozen=True)
class Number:
    """``half`` of the last printed digit: what rounding may have added or taken away."""

    value: float
    half: float = 0.0

    def times(self, factor: float) -> Number:
        return Number(self.value * factor, self.half * factor)

    @property
    def slack(self) -> float:
        """``half`` as a share of the value."""
        return self.half / self.value


def number(text: str) -> tuple[Number, str]:
    """A number above 0 and the unit behind it, "" if there is none."""
    found = _WITH_UNIT.fullmatch(text.strip())
    if found is None:
        raise Unreadable("is not one number" + ("; decimals follow a point" if "," in text else ""))
    digits = found[1].replace(",", "")
    value = float(digits)
    if not value > 0:
        raise Unreadable("is not above 0")
    return Number(value, 0.5 * 10.0 ** -len(digits.partition(".")[2])), found[2].strip().lower()


def count(text: str) -> int:
    """``8``, ``1,024``, ``8 GPUs``, ``2 × 8``."""
    found = _COUNT.fullmatch(text.strip())
    whole = int(found[1].replace(",", "")) * int(found[2] or 1) if found else 0
    if not whole:
        raise Unreadable("is not one whole number above 0")
    return whole


def seconds(text: str, unit: str = "") -> Number:
    """``73.48 s``, ``1h 12m``, ``1:02:33``; a number without a unit is in ``unit``, that of the header."""
    text = text.strip()
    if clock := _CLOCK.fullmatch(text):
        return Number(int(clock[1] or 0) * 3600 + int(clock[2]) * 60 + float(clock[3]), 0.5)
    compound = _COMPOUND.fullmatch(text)
    if compound and sum(part is not None for part in compound.groups()) > 1:
        hours, minutes, rest = (float((part or "0").replace(",", "")) for part in compound.groups())
        last = 1.0 if compound[3] else 60.0
        return Number(hours * 3600 + minutes * 60 + rest, last / 2)
    found, own = number(text)
    named = own or unit
    if named not in TIME_UNITS:
        raise Unreadable(
            f"has the unit {named!r}, which is not one of time" if named else "has no unit of time"
        )
    return found.times(TIME_UNITS[named])


def ratio(text: str) -> Number:
    """A speed-up: ``3.6``, ``3.6x``, ``360 %``."""
    found, unit = number(text)
    if unit not in ("", "x", "×", "%"):
        raise Unreadable("is not a ratio")
    return found.times(0.01) if unit == "%" else found


def share(text: str, *, percent: bool) -> Number:
    """``0.93``, ``93 %``; without a sign by the whole column: ``percent`` if one of its numbers is above 1."""
    found, unit = number(text)
    if unit not in ("", "%"):
        raise Unreadable("is not a share")
    return found.times(0.01) if unit == "%" or percent else found


def precision(text: str) -> str:
    word = text.strip().lower()
    return _PRECISIONS.get(word, word)
