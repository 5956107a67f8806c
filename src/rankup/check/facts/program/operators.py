"""Operators: what arithmetic, comparisons and f-strings make of ranks and sizes."""

from __future__ import annotations

import ast

from rankup.check.facts.program.conditions import compared
from rankup.check.facts.program.module import Scope
from rankup.check.facts.program.results import KnowsValues, calculated, device_text
from rankup.check.facts.program.value import (
    RANKS,
    UNKNOWN,
    Atom,
    Kind,
    Test,
    Value,
    computed,
    constant,
    constants,
    flat_kinds,
    is_only,
    kinds,
    tests,
    the_constant,
)


def arithmetic(values: KnowsValues, node: ast.BinOp, scope: Scope) -> Value:
    """``a + b`` and others: a rank modulo a number is a local rank."""
    left, right = values.of(node.left, scope), values.of(node.right, scope)
    if isinstance(node.op, ast.Mod) and constants(left) and isinstance(constants(left)[0], str):
        return device_text(str(constants(left)[0]), right)
    if isinstance(node.op, ast.Add) and any(isinstance(text, str) for text in constants(left)):
        return device_text("".join(str(t) for t in constants(left)), right)
    if not left or not right:
        return UNKNOWN
    if isinstance(node.op, ast.Mod) and is_only(left, Kind.RANK):
        return frozenset({Atom(Kind.LOCAL_RANK, "modulo")})
    if isinstance(node.op, ast.Mod) and is_only(left, Kind.LOCAL_RANK):
        return left
    if isinstance(node.op, ast.Sub) and is_only(left, Kind.RANK) and Kind.NODE_RANK in flat_kinds(right):
        return frozenset({Atom(Kind.LOCAL_RANK, "difference")})
    if isinstance(node.op, ast.Add):
        for one, other in ((left, right), (right, left)):
            if is_only(one, Kind.LOCAL_RANK) and kinds(other) == {Kind.COMPUTED}:
                return frozenset({Atom(Kind.RANK, "sum")})
    if isinstance(node.op, ast.FloorDiv) and is_only(left, Kind.RANK):
        return frozenset({Atom(Kind.NODE_RANK, "quotient")})
    numbers = the_constant(left), the_constant(right)
    if all(isinstance(number, (int, float)) for number in numbers):
        return calculated(node.op, *numbers)
    if isinstance(node.op, ast.Mult) and Kind.WORLD_SIZE not in flat_kinds(left | right):
        for one, other in ((left, right), (right, left)):
            if is_only(one, Kind.LOCAL_SIZE) and Kind.CONSTANT not in kinds(other):
                return frozenset({Atom(Kind.COMPUTED, flat_kinds(left | right) | {Kind.LOCAL_SIZE})})
    return computed(left, right)


def comparison(values: KnowsValues, node: ast.Compare, scope: Scope) -> Value:
    """``a == b``: a condition on the rank, or a number."""
    if len(node.ops) != 1:
        return UNKNOWN
    left, right = values.of(node.left, scope), values.of(node.comparators[0], scope)
    return compared(node, left, right) or computed(left, right)


def unary(values: KnowsValues, node: ast.UnaryOp, scope: Scope) -> Value:
    """``not a``, ``-a``."""
    value = values.of(node.operand, scope)
    if isinstance(node.op, ast.Not):
        found = tests(value)
        if found:
            return frozenset({Atom(Kind.TEST, found[0].negated())})
        for kind in RANKS:
            if is_only(value, kind):
                return frozenset({Atom(Kind.TEST, Test(kind, True, sure=True))})
        return computed(value)
    number = the_constant(value)
    if isinstance(node.op, ast.USub) and isinstance(number, (int, float)):
        return constant(-number)
    return computed(value) if value else UNKNOWN


def formatted_text(values: KnowsValues, node: ast.JoinedStr, scope: Scope) -> Value:
    """An f-string: a device, or text."""
    start = node.values[0] if node.values else None
    parts = [values.of(v.value, scope) for v in node.values if isinstance(v, ast.FormattedValue)]
    if isinstance(start, ast.Constant) and len(node.values) == 2 and parts:
        return device_text(str(start.value), parts[0])
    if len(node.values) == 1 and parts:
        return parts[0]
    return computed(*parts) if all(parts) else UNKNOWN
