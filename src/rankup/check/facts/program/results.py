"""What calls of Python and torch return, as far as it concerns ranks and devices."""

from __future__ import annotations

import ast
import math
from typing import Protocol

from rankup.check.facts.program.calls import CallGraph
from rankup.check.facts.program.module import Call, Scope
from rankup.check.facts.program.names import words
from rankup.check.facts.program.value import (
    KIND_OF_NAME,
    NOTHING,
    UNKNOWN,
    Atom,
    Kind,
    Value,
    computed,
    constant,
    constants,
    kinds,
    the_constant,
)

_UNCHANGED = {"int", "str", "float", "abs", "list", "tuple", "iter", "sorted", "reversed", "dict"}
_PASSED_ON = words(
    """
    to cuda cpu xpu eval train half float double bfloat16 requires_grad_ share_memory item strip lower decode long int
    """
)


class KnowsValues(Protocol):
    """What is asked of ``Values``, which in turn asks what calls return."""

    graph: CallGraph

    def of(self, node: ast.AST | None, scope: Scope) -> Value: ...
    def variable(self, name: Value, default: Value) -> Value: ...
    def field(self, name: str, base: ast.expr, scope: Scope) -> Value: ...


def known_result(values: KnowsValues, call: Call, scope: Scope) -> Value | None:
    """The result of a call that is known without following it."""
    node, name = call.node, call.name
    first = node.args[0] if node.args and not isinstance(node.args[0], ast.Starred) else None
    if name in KIND_OF_NAME:
        group = call.argument("group", 0)
        if group is not None and the_constant(values.of(group, scope)) is not None:
            group = None
        known = group is None or "device_count" in name
        return frozenset({Atom(KIND_OF_NAME[name], name)}) if known else UNKNOWN
    if name in {"os.getenv", "os.environ.get", "os.environ.pop"}:
        return values.variable(values.of(first, scope), values.of(call.argument("default", 1), scope))
    if name in {"torch.device"}:
        return _device(values, call, scope)
    if name in {"torch.compile", "torch.nn.SyncBatchNorm.convert_sync_batchnorm", "copy.deepcopy"}:
        return values.of(first or call.argument("model"), scope)
    if isinstance(node.func, ast.Name) and not name:
        if node.func.id in _UNCHANGED and len(node.args) == 1:
            return values.of(first, scope)
        if node.func.id == "map" and len(node.args) == 2:
            return values.of(node.args[1], scope)
        if node.func.id == "len":
            inner = values.of(first, scope)
            return frozenset({Atom(Kind.LOCAL_SIZE)}) if kinds(inner) == {Kind.DEVICE_LIST} else None
        if node.func.id in {"min", "max"} and len(node.args) > 1:
            return computed(*(values.of(argument, scope) for argument in node.args))
        if node.func.id == "getattr" and len(node.args) >= 2:
            attribute = the_constant(values.of(node.args[1], scope))
            if isinstance(attribute, str):
                return values.field(attribute, node.args[0], scope)
            return UNKNOWN
    if isinstance(node.func, ast.Attribute):
        return _method(values, call, scope, node.func)
    return None


def _method(values: KnowsValues, call: Call, scope: Scope, function: ast.Attribute) -> Value | None:
    last, base = function.attr, function.value
    if last in {"Get_rank", "Get_size"}:
        return _of_mpi(values, base, scope, last)
    if last in {"get", "pop"} and call.node.args:
        holder = values.of(base, scope)
        if Kind.ENVIRONMENT in kinds(holder):
            return values.variable(
                values.of(call.node.args[0], scope), values.of(call.argument("default", 1), scope)
            )
        key = the_constant(values.of(call.node.args[0], scope))
        return values.field(key, base, scope) if isinstance(key, str) and not call.name else None
    if call.name:
        return None
    if last == "split":
        inner = values.of(base, scope)
        return inner if kinds(inner) == {Kind.DEVICE_LIST} else None
    if last == "format" and isinstance(base, ast.Constant) and len(call.node.args) == 1:
        text = str(base.value)
        if text.endswith(("{}", "{0}")):
            return device_text(text.partition("{")[0], values.of(call.node.args[0], scope))
        return UNKNOWN
    if last in _PASSED_ON and not values.graph.called.get(call):
        return values.of(base, scope) or None
    return None


def _of_mpi(values: KnowsValues, base: ast.expr, scope: Scope, last: str) -> Value:
    """mpi4py's communicators: the world's, or one that was split by node."""
    split = "Split" in ast.dump(base)
    for atom in values.of(base, scope):
        made = atom.call
        split = split or (made is not None and made.last.startswith(("Split", "Create", "Sub")))
    if last == "Get_rank":
        return frozenset({Atom(Kind.LOCAL_RANK if split else Kind.RANK, "MPI")})
    return frozenset({Atom(Kind.LOCAL_SIZE if split else Kind.WORLD_SIZE, "MPI")})


def _device(values: KnowsValues, call: Call, scope: Scope) -> Value:
    """``torch.device("cuda", 0)``, ``torch.device("cuda:0")``, ``torch.device(0)``."""
    given, index = call.argument("type", 0), call.argument("index", 1)
    if given is None:
        given = call.argument("device")
    value = values.of(given, scope)
    if index is not None:
        kind = the_constant(value)
        return frozenset(
            {Atom(Kind.DEVICE, (kind if isinstance(kind, str) else "", values.of(index, scope)))}
        )
    if kinds(value) == {Kind.DEVICE}:
        return value
    found = constants(value)
    if found and len(found) == len(value) and all(isinstance(text, str) for text in found):
        return frozenset({Atom(Kind.DEVICE, _named_device(text)) for text in found})
    if value and Kind.UNKNOWN not in kinds(value) and not found:
        return frozenset({Atom(Kind.DEVICE, ("cuda", value))})
    return UNKNOWN


def _named_device(text: str) -> tuple[str, Value]:
    kind, _, index = text.partition(":")
    return kind, constant(int(index)) if index.isdecimal() else NOTHING


def device_text(start: str, rest: Value) -> Value:
    """A text made of a constant and a value: ``f"cuda:{rank}"`` is a device, all else is computed."""
    if start.rstrip(":") in {"cuda", "xpu", "hip"} and start.endswith(":"):
        return frozenset({Atom(Kind.DEVICE, (start.rstrip(":"), rest))})
    if start == "" and rest:
        return rest
    return computed(rest) if rest else UNKNOWN


def calculated(operator: ast.operator, left: float, right: float) -> Value:
    """Arithmetic on two constants."""
    try:
        if isinstance(operator, ast.Add):
            return constant(left + right)
        if isinstance(operator, ast.Sub):
            return constant(left - right)
        if isinstance(operator, ast.Mult):
            return constant(left * right)
        if isinstance(operator, ast.Div):
            return constant(left / right)
        if isinstance(operator, ast.FloorDiv):
            return constant(left // right)
        if isinstance(operator, ast.Mod):
            return constant(left % right)
        if isinstance(operator, ast.Pow) and abs(right) <= 64 and abs(left) <= 1024:
            return constant(math.pow(left, right))
    except (ArithmeticError, ValueError):
        return UNKNOWN
    return UNKNOWN
