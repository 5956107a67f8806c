"""Conditions on the rank: ``rank == 0``, ``not rank``, ``rank in (-1, 0) and ready``, ``is_main_process()``."""

from __future__ import annotations

import ast
from dataclasses import replace

from rankup.check.facts.program.module import last_name
from rankup.check.facts.program.sounds import A_RANK, FIRST_RANK, ONE_PROCESS, sounds
from rankup.check.facts.program.value import RANKS, Atom, Kind, Test, Value, is_only, tests, the_constant


def compared(node: ast.Compare, left: Value, right: Value) -> Value | None:
    """A comparison of a rank with a number."""
    operator, right_node = node.ops[0], node.comparators[0]
    left_node = node.left
    if not _kind(left) and _kind(right):
        left, right, left_node, right_node = right, left, right_node, left_node
        operator = _MIRRORED.get(type(operator), type(operator))()
    kind = _kind(left)
    sure = kind is not None
    if kind is None:
        if not _sounds_like_a_rank(left_node):
            return None
        kind = Kind.LOCAL_RANK if "local" in last_name(left_node) else Kind.RANK
    first, number = _truth(operator, right)
    if first is None:
        if sure and isinstance(operator, (ast.Eq, ast.NotEq)) and the_constant(right) is None:
            # rank == args.main_rank, rank == world_size - 1: one rank, but which
            return _test(Test(kind, isinstance(operator, ast.Eq), sure=False, number=-1))
        return None
    return _test(Test(kind, first, sure, number=number))


def _truth(operator: ast.cmpop, right: Value) -> tuple[bool | None, int]:
    """Whether a comparison is true on the first rank (else: on the others), and with which number."""
    number = the_constant(right)
    if isinstance(number, bool):
        return None, 0
    if isinstance(operator, (ast.In, ast.NotIn)):
        (atom, *more) = right or {Atom(Kind.UNKNOWN)}
        if more or atom.kind is not Kind.SEQUENCE:
            return None, 0
        members = {the_constant(part) for part in atom.detail}
        if members <= {-1, 0, None} and 0 in members:
            return isinstance(operator, ast.In), 0
        return None, 0
    if not isinstance(number, int):
        return None, 0
    if isinstance(operator, (ast.Eq, ast.Is)):
        return (True, number) if number >= 0 else (None, 0)
    if isinstance(operator, (ast.NotEq, ast.IsNot)):
        return (False, number) if number >= 0 else (None, 0)
    if (isinstance(operator, ast.Gt) and number == 0) or (isinstance(operator, ast.GtE) and number == 1):
        return False, 0
    if (isinstance(operator, ast.Lt) and number == 1) or (isinstance(operator, ast.LtE) and number == 0):
        return True, 0
    return None, 0


def connected(both: bool, nodes: list[ast.expr], operands: list[Value]) -> Value | None:
    """``a and b`` or ``a or b`` with at least one condition on the rank."""
    found: list[Test] = []
    others: list[ast.expr] = []
    for node, value in zip(nodes, operands, strict=True):
        inner = tests(value)
        kind = _kind(value)
        if inner:
            found.append(inner[0])
        elif kind is not None and value and both:
            found.append(Test(kind, False, sure=True))
        else:
            others.append(node)
    if not found or not any(tests(value) for value in operands):
        return None
    test = found[0]
    if any(other.first != test.first for other in found[1:]):
        return _test(replace(test, sure=False, partly=True))
    if not others:
        return _test(test)
    sure = test.sure and not any(_asks_for_one_process(node) for node in others)
    if both:
        return _test(replace(test, sure=sure, partly=True))
    return _test(replace(test, sure=sure, either=True))


def named_test(node: ast.AST) -> Value | None:
    """What a name alone promises: ``is_main_process``, ``master``. Never sure."""
    name = last_name(node).lower()
    if sounds(name, FIRST_RANK) or name in {"master", "is_chief", "main", "rank_zero"}:
        if isinstance(node, ast.Name) and name == "main":
            return None
        if name in {"init_main_process"}:
            return None
        kind = Kind.LOCAL_RANK if "local" in name else Kind.RANK
        return _test(Test(kind, "not_" not in name, sure=False))
    return None


def _test(test: Test) -> Value:
    return frozenset({Atom(Kind.TEST, test)})


def _kind(value: Value) -> Kind | None:
    for kind in RANKS:
        if is_only(value, kind):
            return kind
    if is_only(value, *RANKS):
        return Kind.RANK
    return None


def _sounds_like_a_rank(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return _sounds_like_a_rank(node.left)
    name = last_name(node).lower()
    return "rank" in name or name in A_RANK


def _asks_for_one_process(node: ast.AST) -> bool:
    """Whether an operand asks for the number of processes: ``world_size == 1``, ``not distributed``."""
    return sounds(ast.dump(node), ONE_PROCESS)


_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
}
