"""Durations, sizes and counts: read from people, written for people and for schedulers."""

from __future__ import annotations

import re

_UNIT_SECONDS = {"d": 86400, "h": 3600, "m": 60, "min": 60, "s": 1}
#: Seconds of a unit, as programs and tables print it.
TIME_UNITS = {
    **dict.fromkeys(("us", "µs", "μs"), 1e-6),
    "ms": 1e-3,
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
}
_WORDED = re.compile(r"(?:\d+(?:d|h|min|m|s)\s*)+", re.IGNORECASE)
_PART = re.compile(r"(\d+)(d|h|min|m|s)", re.IGNORECASE)
_CLOCK = re.compile(r"(?:(?P<days>\d+)-)?(?P<h>\d+):(?P<m>[0-5]?\d)(?::(?P<s>[0-5]?\d))?")
_PRINTED = re.compile(r"(?:(\d{1,9})-)?(?:(\d{1,6}):)?(\d{1,4}):(\d{1,4})")
_SIZE = re.compile(r"(\d+)\s*([KMGT])(?:i?B)?", re.IGNORECASE)
_SIZE_MIB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}


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


def parse_duration(text: str) -> int:
    """Seconds of ``90m``, ``1d12h``, ``24:00:00`` or ``1-12:00:00``. Raises ``ValueError``.

    A bare number is refused: SLURM reads it as minutes, PBS as seconds. So is ``10:30``, which both read as minutes
    and seconds, and people as hours and minutes.
    """
    text = text.strip()
    if _WORDED.fullmatch(text):
        seconds = sum(int(n) * _UNIT_SECONDS[unit.lower()] for n, unit in _PART.findall(text))
    elif (clock := _CLOCK.fullmatch(text)) and (clock["s"] or clock["days"]):
        hours = int(clock["days"] or 0) * 24 + int(clock["h"])
        seconds = hours * 3600 + int(clock["m"]) * 60 + int(clock["s"] or 0)
    else:
        raise ValueError(f"{text!r} is not a duration: use 90m, 24h, 1d12h or HH:MM:SS")
    if seconds == 0:
        raise ValueError(f"{text!r} must be longer than zero")
    return seconds


def parse_clock(text: str) -> int | None:
    """Seconds of what schedulers print: ``1-02:03:04``, ``24:00:00`` or ``30:00``, which is minutes and seconds.

    None for anything else, such as ``infinite``, or ``INVALID`` while a job is being started.
    """
    found = _PRINTED.fullmatch(text.strip())
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def clock(seconds: int, *, days: bool = False) -> str:
    """``HH:MM:SS``, or SLURM's ``D-HH:MM:SS`` from a day on if ``days``."""
    minutes, s = divmod(seconds, 60)
    hours, m = divmod(minutes, 60)
    if days and hours >= 24:
        return f"{hours // 24}-{hours % 24:02d}:{m:02d}:{s:02d}"
    return f"{hours:02d}:{m:02d}:{s:02d}"


def parse_size(text: str) -> int:
    """MiB of ``440G``, ``32GiB`` or ``500M``: powers of 1024, as SLURM and PBS mean them. Raises ``ValueError``."""
    match = _SIZE.fullmatch(text.strip())
    mib = int(match[1]) * _SIZE_MIB[match[2].upper()] if match else 0
    if mib < 1:
        raise ValueError(f"{text!r} is not a size: use 32G or 500M")
    return int(mib)


def size(mib: int) -> str:
    """``440G``, or ``500M`` where it is not a whole number of GiB."""
    return f"{mib // 1024}G" if mib % 1024 == 0 else f"{mib}M"
