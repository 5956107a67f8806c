"""Converts the text of ``--set KEY=VALUE`` to a value, or raises one clear error."""

from __future__ import annotations

from rankup.errors import RankupError


def switch(name: str, value: str) -> bool:
    """``on`` or ``off``."""
    if value not in ("on", "off"):
        raise _bad(name, value, "on or off")
    return value == "on"


def whole(name: str, value: str, at_least: int = 1) -> int:
    """A whole number, at least ``at_least``."""
    if not value.isdecimal() or int(value) < at_least:
        raise _bad(name, value, f"a whole number, {at_least} or more")
    return int(value)


def share(name: str, value: str) -> float:
    """A number in [0, 1)."""
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1:
        raise _bad(name, value, "a number in [0, 1)")
    return number


def _bad(name: str, value: str, allowed: str) -> RankupError:
    return RankupError("bad-setting", f"invalid --set {name}={value}", hint=f"{name} must be {allowed}")
