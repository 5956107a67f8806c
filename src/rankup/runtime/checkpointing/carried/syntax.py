"""Parts of a script's source: dotted names, functions, loops."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache

LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_DEPTH = 4  # parts of a dotted name
SUPER = "super()"
_OF_ALL = ("map", "sum", "list", "tuple", "reduce", "functools.reduce", "deque", "collections.deque")


@lru_cache(maxsize=64)
def parsed(source: str) -> ast.Module:
    """An empty module for what is no Python."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module(body=[], type_ignores=[])


@lru_cache(maxsize=1024)
def parts_of(one: ast.AST) -> tuple[ast.AST, ...]:
    """All that ``ast.walk`` finds. One reading of a script asks dozens of times for the parts of one function."""
    return tuple(ast.walk(one))


@lru_cache(maxsize=64)
def functions(source: str) -> Mapping[int, ast.FunctionDef | ast.AsyncFunctionDef]:
    """By the line that they begin in, with their decorators; also a lambda that is alone in its line."""
    every = parts_of(parsed(source))
    lambdas = [one for one in every if isinstance(one, ast.Lambda)]
    lines = Counter(one.lineno for one in lambdas)
    return {one.lineno: _as_function(one) for one in lambdas if lines[one.lineno] == 1} | {
        min([one.lineno, *(each.lineno for each in one.decorator_list)]): one
        for one in every
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))
    }


def _as_function(one: ast.Lambda) -> ast.FunctionDef:
    result = ast.copy_location(ast.Return(value=one.body), one)
    function = ast.FunctionDef(name="<lambda>", args=one.args, body=[result], decorator_list=[])
    return ast.copy_location(function, one)


def covered(name: str, stored: Set[str]) -> bool:
    """Whether it, or what holds it, is in ``stored``."""
    while name and name not in stored:
        name = name.rpartition(".")[0]
    return bool(name)


def dotted(one: ast.AST) -> str:
    """The name of a variable or an attribute, at most four parts of it: ``"self.best"``, ``"history.[loss]"`` for
    ``history["loss"]``. "" for another expression, such as ``f(x).best`` or ``history[i]``."""
    parts: list[str] = []
    while isinstance(one, (ast.Attribute, ast.Subscript)):
        if isinstance(one, ast.Attribute):
            parts.append(one.attr)
        elif key := _key(one.slice):
            parts.append(f"[{key}]")
        else:
            return ""
        one = one.value
    if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "super":
        parts.append(SUPER)
    elif isinstance(one, ast.Name):
        parts.append(one.id)
    else:
        return ""
    return cut(".".join(reversed(parts)))


def _key(one: ast.expr) -> str:
    """``"loss"`` of ``history["loss"]``; "" if the key is not a constant that could be a name."""
    value = one.value if isinstance(one, ast.Constant) else None
    return value if isinstance(value, str) and value.isidentifier() else ""


def cut(name: str) -> str:
    return ".".join(name.split(".")[:_DEPTH])


def called_name(call: ast.expr) -> str:
    """The dotted name of the function that ``call`` calls; "" if it has none, or more than four parts."""
    name = dotted(call.func) if isinstance(call, ast.Call) else ""
    ends = (
        "." + call.func.attr
        if name and isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        else ""
    )
    return name if name.endswith(ends) else ""


@lru_cache(maxsize=1024)
def own_names(one: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> frozenset[str]:
    """The names of a function's own variables."""
    body = [one.body] if isinstance(one, ast.Lambda) else one.body
    parameters = {each.arg for each in parts_of(one.args) if isinstance(each, ast.arg)}
    return frozenset((parameters | {name for part in body for name in stores(part)}) - declared(one))


def stores(one: ast.AST) -> set[str]:
    return {
        part.id for part in parts_of(one) if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)
    }


def declared(one: ast.AST) -> set[str]:
    """Names that a function declares global or nonlocal."""
    return {
        name for part in parts_of(one) if isinstance(part, (ast.Global, ast.Nonlocal)) for name in part.names
    }


def loops_around(tree: ast.Module, line: int) -> tuple[list[ast.For | ast.AsyncFor | ast.While], ast.AST]:
    """The loops around ``line``, the innermost first, and the function or module that they are in."""
    scope: ast.AST = tree
    found: list[ast.For | ast.AsyncFor | ast.While] = []
    for part in _around(tree, line):
        if isinstance(part, FUNCTIONS):
            scope, found = part, []
        elif isinstance(part, LOOPS):
            found.append(part)
    return found[::-1], scope


def loop_over(source: str, line: int) -> tuple[ast.For | ast.AsyncFor | None, ast.AST]:
    """The loop that has ``line`` in its header, and the function or module that it is in."""
    loops, scope = loops_around(parsed(source), line)
    for loop in loops:
        if not isinstance(loop, ast.While) and loop.lineno <= line <= (loop.iter.end_lineno or 0):
            return loop, scope
    return None, scope


def is_read(name: str, loop: ast.For | ast.AsyncFor, scope: ast.AST) -> bool:
    """Whether the loop's body, or the code after the loop in ``scope``, reads the variable ``name``."""
    bodies = [*loop.body, *loop.orelse]
    inside = any(
        isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Load)
        for statement in bodies
        for part in parts_of(statement)
    )
    return inside or name in read_after(scope, loop)


def _around(one: ast.AST, line: int) -> Iterator[ast.AST]:
    """From the outermost on."""
    for part in ast.iter_child_nodes(one):
        if getattr(part, "lineno", line + 1) <= line <= (getattr(part, "end_lineno", None) or 0):
            yield part
            yield from _around(part, line)
        elif not hasattr(part, "lineno"):  # a case of a match
            yield from _around(part, line)


@lru_cache(maxsize=64)
def in_comprehension(source: str, line: int) -> bool:
    """Whether ``line`` has a part of a comprehension, or of a call that makes one value of all batches. Not in the
    header of a loop (``for x in map(moved, epoch)``)."""
    tree = parsed(source)
    headers = {
        id(part) for loop in parts_of(tree) if isinstance(loop, ast.For) for part in parts_of(loop.iter)
    }
    return any(
        (
            isinstance(part, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp))
            or (isinstance(part, ast.Call) and called_name(part) in _OF_ALL)
        )
        and id(part) not in headers
        and part.lineno <= line <= (part.end_lineno or part.lineno)
        for part in parts_of(tree)
    )


@lru_cache(maxsize=64)
def zips(source: str, line: int) -> tuple[ast.Call, ...]:
    """The calls of ``zip`` in the outermost loop around ``line``, also in its header."""
    loops, _ = loops_around(parsed(source), line)
    every = parts_of(loops[-1]) if loops else ()
    return tuple(part for part in every if isinstance(part, ast.Call) and called_name(part) == "zip")


def read_after(scope: ast.AST, loop: ast.stmt) -> set[str]:
    last = loop.end_lineno or loop.lineno
    return {
        name
        for part in parts_of(scope)
        if isinstance(part, (ast.Name, ast.Attribute))
        and isinstance(part.ctx, ast.Load)
        and part.lineno > last
        and (name := dotted(part))
    }


def class_of(tree: ast.AST, names: Sequence[str], line: int = 0) -> ast.ClassDef | None:
    """By its qualified name, as in ``Trainer`` or ``main.<locals>.Trainer``. Of several with one name, in the branches
    of a condition, the one that has ``line``; else the first one."""
    found = [tree]
    for name in (name for name in names if name != "<locals>"):
        found = [
            part
            for at in found
            for part in parts_of(at)
            if isinstance(part, (ast.ClassDef, ast.FunctionDef)) and part.name == name and part is not at
        ]
    classes = [one for one in found if isinstance(one, ast.ClassDef)]
    there = [one for one in classes if one.lineno <= line <= (one.end_lineno or 0)]
    return next(iter(there or classes), None)
