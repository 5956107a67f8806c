"""The quantities of a cell: seconds, rates, ratios, counts of devices, precisions. None is: it does not say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

WORDS = {
    "a": 1, "one": 1, "single": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "eight": 8, "ten": 10,
    "twelve": 12, "sixteen": 16, "thirty-two": 32,
}  # fmt: skip
_NUMBER = r"\d{1,3}(?:[,\u202f ']\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
NUMBER = re.compile(_NUMBER)
# Numbers that have decimals for certain, and all that are written with a decimal comma or with points for thousands.
_COMMA_DECIMALS = re.compile(r"(?<![\d.,])(?:\d+,(?:\d{1,2}|\d{4,})|0,\d+|\d{1,3}(?:\.\d{3})+,\d+)(?![\d.,])")
_POINT_DECIMALS = re.compile(r"(?<![\d.])\d[\d,]*\.(?:\d{1,2}|\d{4,})(?![\d.,])|(?<![\d.,])0\.\d")
_COMMA_NUMBER = re.compile(r"(?<![\d.,])(?:\d{1,3}(?:\.\d{3})+(?:,\d+)?|\d+,\d+)(?![\d.,])")
_SECONDS = {
    "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "msec": 1e-3, "millisecond": 1e-3, "s": 1, "sec": 1, "secs": 1,
    "second": 1, "m": 60, "min": 60, "mins": 60, "minute": 60, "h": 3600, "hr": 3600, "hrs": 3600, "hour": 3600,
    "d": 86400, "day": 86400, "秒": 1, "分钟": 60, "小时": 3600,
}  # fmt: skip
_UNITS = "|".join(sorted((re.escape(unit) for unit in _SECONDS), key=len, reverse=True))
_TIMED = re.compile(rf"({_NUMBER})\s*({_UNITS})(?:ute|ond)?s?(?![a-z])\.?(?!\s*/)", re.I)
_CLOCK = re.compile(r"\b(?:(\d+):)?(\d{1,3}):(\d{2}(?:\.\d+)?)\b")
_HEADER_UNIT = re.compile(
    rf"[(\[/,]\s*({_UNITS})(?:ute|ond)?s?\.?\s*(?:[)\],/]|$|per\b)|\bin ({_UNITS})s?\b", re.I
)
_PER_SECOND = re.compile(
    r"/\s*s(?:ec(?:ond)?)?\b|per\s+sec(?:ond)?|\bips\b|\bfps\b|\btps\b|\bqps\b|每秒"
    r"|/\s*(?:day|hour|h|min)\b|per (?:day|hour|minute)",
    re.I,
)

_COUNT = r"(\d+|" + "|".join(WORDS) + r")"
_DEVICE = r"(?:gpus?|gcds?|devices?|accelerators?|ranks?|process(?:es)?|procs?|workers?|tpus?|cards?|卡|副本)"
_NODES = r"(?:nodes?|machines?|servers?|hosts?|机)"
_PRECISIONS = (
    ("fp64", r"fp64|float64|double[- ]precision"),
    ("tf32", r"tf32|tensorfloat"),
    ("bf16", r"bf16|bfloat16"),
    ("fp16", r"fp16|(?<!b)float16|half[- ]precision|\bhalf\b"),
    ("fp8", r"fp8"),
    ("mixed", r"\bamp\b|mixed|autocast|gradscaler"),
    ("fp32", r"fp32|float32|single[- ]precision|full[- ]precision|32-bit"),
)

_NOT_MIXED = re.compile(
    r"\b(?:no|without|w/o|non|not using)[\s-]+(?:automatic )?(?:amp|mixed[\s-]precision|autocast)\b", re.I
)


@dataclass(frozen=True)
class Quantity:
    """A number and half a unit of its last printed digit; ``about`` if the author says so (~)."""

    value: float
    half: float
    about: bool = False

    def times(self, factor: float) -> Quantity:
        return Quantity(self.value * factor, self.half * factor, self.about)

    @property
    def slack(self) -> float:
        """By what share the number may differ from what was measured."""
        return self.half / self.value + (0.1 if self.about else 0.0)


def decimal_points(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """``rows`` with decimal points, if the table is written with decimal commas: ``1,925`` and ``1.234,5``, ``1.234``.

    Three digits after a comma may be decimals or thousands: what else is in the table decides.
    """
    cells = [cell for row in rows[1:] for cell in row]
    commas = any(_COMMA_DECIMALS.search(cell) for cell in cells)
    if not commas or any(_POINT_DECIMALS.search(cell) for cell in cells):
        return [list(row) for row in rows]
    return [list(rows[0]), *([_COMMA_NUMBER.sub(_with_point, cell) for cell in row] for row in rows[1:])]


def _with_point(number: re.Match[str]) -> str:
    return number[0].replace(".", "").replace(",", ".")


def number(text: str) -> Quantity | None:
    """The first number of ``text``: ``1,234.5``, ``12,5``, ``~7``, ``1.2e3``. None for a negative one."""
    text = re.sub(r"(?<![\d.,])(\d+),(\d{1,2})(?!\d)", r"\1.\2", text)
    match = NUMBER.search(text)
    if not match or re.search(r"\d\s*[-–]\s*\d", text):  # a range is not a number
        return None
    if re.match(r"\s*[-−]\d", text):
        return None
    digits = re.sub(r"[,\u202f ']", "", match[0])
    mantissa, _, power = digits.lower().partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(power or 0)
    about = bool(re.search(r"[~≈∼]|about|approx|circa|around|>|<", text, re.I))
    value = float(digits)
    return Quantity(value, 0.5 * 10.0**-decimals, about) if value > 0 else None


def seconds(text: str, unit: str = "") -> Quantity | None:
    """``73.48 s``, ``1h 12m``, ``1:02:33``, ``480 min (8h)``, or a bare number in ``unit`` of the header."""
    text = re.sub(r"(?<![\d.,])(\d+),(\d{1,2})(?!\d)", r"\1.\2", text.split("±")[0] + _after_spread(text))
    text = text.split("(")[0] if _TIMED.search(text.split("(")[0]) else text
    about = bool(re.search(r"[~≈∼]|about|approx|around", text, re.I))
    if _PER_SECOND.search(text) or re.search(r"\d\s*[-–]\s*\d", text):
        return None
    if match := _CLOCK.search(text):
        hours, minutes, rest = int(match[1] or 0), int(match[2]), float(match[3])
        if match[1] is None and unit.startswith("h"):
            return Quantity(3600.0 * minutes + 60 * rest, 30.0, about)
        return Quantity(3600.0 * hours + 60 * minutes + rest, 0.5, about)
    if parts := _TIMED.findall(text):
        whole = [(number(value), _SECONDS[name.lower()]) for value, name in parts]
        known = [(value, factor) for value, factor in whole if value]
        if known:
            last, factor = known[-1]
            return Quantity(sum(v.value * f for v, f in known), last.half * factor, about)
        return None
    found = number(text)
    return found.times(_SECONDS[unit]) if found and unit else found


def _after_spread(text: str) -> str:
    """The unit behind ``± 0.2``."""
    match = re.search(rf"±\s*[\d.]+\s*({_UNITS})\b", text)
    return f" {match[1]}" if match else ""


def header_unit(header: str) -> str:
    """The unit of time that a header gives: ``Time (min)``, ``Runtime [s]``, ``time in hours``; "" for none."""
    header = header.replace("_", " ")
    match = (
        re.match(rf"({_UNITS})\s*/\s*(?:step|iter|it|batch|epoch)", header, re.I)
        or _HEADER_UNIT.search(header)
        or re.search(r"\btime (ms|s|sec|min|h)\b", header, re.I)
        or re.search(r"\b(milliseconds?|seconds?|secs?|minutes?|mins?|hours?|hrs?)\b", header, re.I)
    )
    if not match:
        return ""
    unit = next(group for group in match.groups() if group).lower()
    return unit if unit in _SECONDS else unit.rstrip("s") if unit.rstrip("s") in _SECONDS else ""


def is_rate(text: str) -> bool:
    return bool(_PER_SECOND.search(text))


def rate(text: str) -> Quantity | None:
    found = number(text.split("±")[0])
    factor = re.search(r"\d\s*(k|M)\b", text) or re.search(r"\d\s*(K)\b", text)
    return found.times(1e6 if factor[1] == "M" else 1e3) if found and factor else found


def ratio(text: str) -> Quantity | None:
    """``15.2x``, ``×3.8``, ``1.9``, ``182%``; a dash or a word is None."""
    found = number(text)
    return found.times(0.01) if found and "%" in text else found


def share(text: str, header: str = "") -> Quantity | None:
    """``93 %``, ``0.93`` → 0.93, with the header's ``%`` if it has one."""
    found = number(text)
    if found is None:
        return None
    percent = "%" in text or "%" in header or found.value > 3
    return found.times(0.01) if percent else found


def count(text: str) -> int | None:
    """A whole number, alone or with a word: ``8``, ``8 GPUs``, ``four``."""
    text = re.sub(r"(?<=\d)[,\u202f '](?=\d{3}(?!\d))", "", text.strip())
    match = re.fullmatch(rf"\W*{_COUNT}\b(?:\s*[a-z ()]*)?\W*", text, re.I)
    return _int(match[1]) if match else None


def nodes(text: str) -> int | None:
    match = re.search(rf"\b{_COUNT}[\s-]*(?:\w+\s+)?{_NODES}\b", text, re.I)
    return _int(match[1]) if match else None


def devices(text: str) -> tuple[str, int] | None:
    """(kind, how many) of ``2 nodes × 4 GPUs``, ``4 GPUs, AMP``, ``8x A100``, ``V100 ×4``, ``2n8g``, ``16 cores``."""
    low = text.lower()
    if re.search(r"\d\s*(?:-{1,2}|–|to)\s*\d+[\s-]*(?:nodes?|gpus?|cores?|cpus?)", low):
        return None
    per_node = re.search(
        rf"{_COUNT}[\s-]*{_NODES}\s*(?:[x×*,(]|with|of|à|"
        rf"-)*\s*{_COUNT}[\s-]*(?:[a-z0-9]+\s+)?{_DEVICE}\s*(per|each|/)?",
        low,
    )
    if per_node:
        first, second = _int(per_node[1]), _int(per_node[2])
        joined = re.search(rf"{_NODES}\s*(?:[x×*]|with|of)", low) or per_node[3]
        return "gpu", first * second if joined else second
    if match := re.search(r"\b(\d+)n(\d+)g\b", low):
        return "gpu", int(match[1]) * int(match[2])
    if match := re.search(r"\b(\d+)\s*[x×*]\s*(\d+)\b(?!\s*(?:gb|px|image))", low):
        return "gpu", int(match[1]) * int(match[2])
    if match := re.search(
        rf"\b{_COUNT}[\s-]*(?:[x×]\s*)?(?:(?:nvidia|amd|tesla|[a-z]+\d+\w*)[\s-]+){{0,3}}{_DEVICE}(?![a-z])",
        low,
    ):
        return "gpu", _int(match[1])
    if match := re.search(r"\b(\d+)\s*[x×]\s*(?:nvidia\s+|amd\s+|tesla\s+)?[a-z]+\d", low):
        return "gpu", int(match[1])
    if match := re.search(r"\b[a-z]+\d+\w*(?:\s*\d+\s*gb)?\s*[x×*]\s*(\d+)\b", low):
        return "gpu", int(match[1])
    if match := re.search(rf"\b{_COUNT}[\s-]*(?:cpu[\s-]*)?(?:cores?|threads?|cpus?)\b", low):
        return "cpu", _int(match[1])
    if match := re.search(r"--nproc[-_]per[-_]node[= ](\d+)", low):
        of_nodes = re.search(r"--nnodes[= ](\d+)", low)
        return "gpu", int(match[1]) * (int(of_nodes[1]) if of_nodes else 1)
    if match := re.search(
        r"\bparallel\b\W*(\d+)\b|(?:^|\s)-{1,2}(?:jobs?|j|np|n|threads?)[\s=]*(\d+)\b", low
    ):
        return "cpu", int(match[1] or match[2])
    if re.search(r"\bsequential\b|\bserial\b", low):
        return "cpu", 1
    if re.search(r"\bcpu\b", low):
        return "cpu", 1
    if match := re.search(rf"\b{_COUNT}[\s-]*{_NODES}\b", low):
        return "node", _int(match[1])
    return None


def precision(text: str) -> str | None:
    """One precision, or None if none or several are named. ``FP16 mixed precision`` is fp16."""
    names = precisions(text)
    if "mixed" in names and len(names) > 1:
        names.discard("mixed")
    return names.pop() if len(names) == 1 else None


def precisions(text: str) -> set[str]:
    """All precisions that are named; ``no AMP`` is fp32."""
    text = _NOT_MIXED.sub(" fp32 ", text)
    return {name for name, pattern in _PRECISIONS if re.search(pattern, text, re.I)}


def same_precision(a: str | None, b: str | None) -> bool:
    """Unknown ones are not known to differ; ``mixed`` may be fp16 or bf16."""
    if a is None or b is None or a == b:
        return True
    return {a, b} <= {"mixed", "fp16"} or {a, b} <= {"mixed", "bf16"}


def _int(text: str) -> int:
    return WORDS[text.lower()] if text.lower() in WORDS else int(text)
