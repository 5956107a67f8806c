"""Arithmetic of bash, as far as job scripts compute numbers of nodes and processes."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\s*(\d+|\*\*|[-+*/%()]|.)")


def tokens_of(text: str) -> list[str]:
    """Numbers, operators and parentheses."""
    return [part for part in _TOKEN.findall(text) if part.strip()]


def computed(flat: list[str]) -> int | None:
    """The value of an expression of numbers with + - * / % and parentheses."""
    if len(flat) > 50:
        return None
    try:
        value, rest = _sum(flat)
    except (ValueError, IndexError, ZeroDivisionError):
        return None
    return value if not rest and abs(value) < 10**9 else None


def _sum(tokens: list[str]) -> tuple[int, list[str]]:
    value, tokens = _product(tokens)
    while tokens and tokens[0] in "+-":
        other, rest = _product(tokens[1:])
        value = value + other if tokens[0] == "+" else value - other
        tokens = rest
    return value, tokens


def _product(tokens: list[str]) -> tuple[int, list[str]]:
    value, tokens = _factor(tokens)
    while tokens and tokens[0] in ("*", "/", "%"):
        other, rest = _factor(tokens[1:])
        value = value * other if tokens[0] == "*" else value // other if tokens[0] == "/" else value % other
        tokens = rest
    return value, tokens


def _factor(tokens: list[str]) -> tuple[int, list[str]]:
    if tokens[0] == "(":
        value, rest = _sum(tokens[1:])
        if rest[0] != ")":
            raise ValueError
        return value, rest[1:]
    return int(tokens[0]), tokens[1:]
