"""Which variables a loop of a script carries from one pass to the next, read from its source.

A name is carried if a pass may read it before the pass has set it (``best = max(best, accuracy)``,
``history.append(loss)``), or if a pass sets it only sometimes and it is read after the loop. What each pass sets first
is not carried, however it changes (``total = 0.0`` before an inner loop). Names are dotted: ``best``, ``self.best``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

# What begins a pass anew by the name of its method: ``meter.reset()``, ``sampler.set_epoch(epoch.index)``.
_ANEW = ("reset", "clear", "restart", "zero_", "set_", "start", "begin")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_TRY = (ast.Try, getattr(ast, "TryStar", ast.Try))  # from Python 3.11 on
_DEPTH = 3  # parts of a dotted name
_CLOCKS = frozenset({"time", "perf_counter", "monotonic", "process_time", "datetime", "now", "elapsed_time"})


@dataclass(frozen=True)
class Carried:
    """``names`` may be carried; ``anew`` are set in each pass before they are read. ``line``: of the loop."""

    names: frozenset[str]
    anew: frozenset[str]
    line: int


@lru_cache(maxsize=64)
def parsed(source: str) -> ast.Module:
    """An empty module for what is no Python."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module(body=[], type_ignores=[])


@lru_cache(maxsize=256)
def carried_around(source: str, line: int) -> tuple[Carried, ...]:
    """Of the loops around ``line``, in their headers or bodies, the innermost first."""
    tree = parsed(source)
    inside, scope = _loops_around(tree, line)
    elsewhere = _of_functions(tree) if inside else frozenset()
    clocks = _from_clocks(tree)
    found = []
    for loop in inside:
        flow = _Flow()
        header = [loop.test] if isinstance(loop, ast.While) else []
        for test in header:
            flow.expression(test)
        if not isinstance(loop, ast.While):
            flow.store(loop.target)
        flow.block(loop.body)
        anew = frozenset(flow.stored - flow.exposed)
        after = _read_after(scope, loop) & (flow.sometimes - flow.stored)
        names = flow.exposed | after | {name for name in elsewhere if not _covered(name, anew)}
        found.append(Carried(frozenset(names - clocks), anew, loop.lineno))
    return tuple(found)


@lru_cache(maxsize=64)
def carried_attributes(source: str, name: str) -> frozenset[str]:
    """Attributes of the class ``name`` (its qualified name) that a method may read before it sets them. Not those that
    only its ``__init__`` or a method that begins anew uses."""
    found: set[str] = set()
    tree = parsed(source)
    described = _class(tree, name.split("."))
    clocks = {dotted.rpartition(".")[2] for dotted in _from_clocks(tree) if "." in dotted}
    for method in described.body if described is not None else []:
        if not isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)) or not method.args.args:
            continue
        if method.name.startswith(("__init__", "__repr__", "__str__", *_ANEW)):
            continue
        me = method.args.args[0].arg + "."
        flow = _Flow()
        flow.block(method.body)
        found |= {dotted.split(".")[1] for dotted in flow.exposed if dotted.startswith(me)}
    return frozenset(found - clocks)


@dataclass
class _Flow:
    """Of one pass: what it may read before it has set it, and what it sets."""

    exposed: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)  # on each way through what was read so far
    sometimes: set[str] = field(default_factory=set)  # on some way
    left: list[set[str]] = field(
        default_factory=list
    )  # ``stored`` where a continue or a break leaves an inner loop

    def block(self, statements: Sequence[ast.stmt]) -> bool:
        """Whether the code behind ``statements`` can be reached."""
        return all(self.statement(statement) for statement in statements)

    def statement(self, one: ast.stmt) -> bool:
        if isinstance(one, (ast.Assign, ast.AnnAssign)):
            if one.value is not None:
                self.expression(one.value)
                for target in one.targets if isinstance(one, ast.Assign) else [one.target]:
                    self.store(target)
        elif isinstance(one, ast.AugAssign):
            self.expression(one.value)
            self.expression(one.target)
            self.store(one.target)
        elif isinstance(one, ast.If):
            self.expression(one.test)
            return self._branches([one.body, one.orelse])
        elif isinstance(one, _LOOPS):
            # It is taken to run once at least: a loop over batches does.
            self.expression(one.test if isinstance(one, ast.While) else one.iter)
            if not isinstance(one, ast.While):
                self.store(one.target)
            outside, self.left = self.left, []
            if self.block(one.body):
                self.left.append(self.stored)
            self.stored = set.intersection(*self.left) if self.left else self.stored
            self.left = outside
            self.block(one.orelse)
        elif isinstance(one, (ast.With, ast.AsyncWith)):
            for item in one.items:
                self.expression(item.context_expr)
                if item.optional_vars is not None:
                    self.store(item.optional_vars)
            return self.block(one.body)
        elif isinstance(one, _TRY):
            before = set(self.stored)
            reached = self._branches([[*one.body, *one.orelse], *(each.body for each in one.handlers)])
            after, self.stored = self.stored, before
            reached = self.block(one.finalbody) and reached
            self.stored |= after
            return reached
        elif isinstance(one, ast.Match):
            self.expression(one.subject)
            for case in one.cases:
                self.sometimes |= {
                    name for part in ast.walk(case.pattern) if (name := getattr(part, "name", None))
                }
            return self._branches([*(case.body for case in one.cases), []])
        elif isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._function(one)
            self._put(one.name)
        elif isinstance(one, ast.ClassDef):
            self._put(one.name)
        elif isinstance(one, (ast.Import, ast.ImportFrom)):
            for alias in one.names:
                self._put((alias.asname or alias.name).split(".")[0])
        elif isinstance(one, ast.Expr) and (began := _began_anew(one.value)):
            for argument in ast.iter_child_nodes(one.value):
                if argument is not getattr(one.value, "func", None):
                    self._inside(argument, set())
            self._put(began)
        else:
            for part in ast.iter_child_nodes(one):
                if isinstance(part, ast.expr):
                    self.expression(part)
            if isinstance(one, (ast.Continue, ast.Break)):
                self.left.append(set(self.stored))
            return not isinstance(one, (ast.Continue, ast.Break, ast.Return, ast.Raise))
        return True

    def expression(self, one: ast.expr) -> None:
        if isinstance(one, _FUNCTIONS):
            self._function(one)
        elif isinstance(one, (ast.Name, ast.Attribute)) and (name := _dotted(one)):
            self._get(name)
        elif isinstance(one, ast.NamedExpr):
            self.expression(one.value)
            self.store(one.target)
        elif isinstance(one, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            self._inside(one, _stores(one))
        else:
            for part in ast.iter_child_nodes(one):
                if isinstance(part, ast.expr):
                    self.expression(part)
                elif isinstance(part, ast.keyword):
                    self.expression(part.value)

    def store(self, target: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self.store(part)
        elif isinstance(target, ast.Starred):
            self.store(target.value)
        elif isinstance(target, ast.Subscript):  # changes what is there
            self.expression(target.value)
            self.expression(target.slice)
        elif name := _dotted(target):
            self._put(name)

    def _get(self, name: str) -> None:
        """Also of the object that an attribute belongs to."""
        while name and not _covered(name, self.stored):
            self.exposed.add(name)
            name = name.rpartition(".")[0]

    def _put(self, name: str) -> None:
        self.stored.add(name)
        self.sometimes.add(name)

    def _branches(self, branches: Sequence[Sequence[ast.stmt]]) -> bool:
        """One of ``branches`` runs. What a way sets that leaves the pass is of no use behind it."""
        before, ends = set(self.stored), []
        for branch in branches:
            self.stored = set(before)
            if self.block(branch):
                ends.append(self.stored)
        self.stored = set.intersection(*ends) if ends else before
        return bool(ends)

    def _function(self, one: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        """What it may read of its surroundings."""
        body = [one.body] if isinstance(one, ast.Lambda) else one.body
        parameters = {each.arg for each in ast.walk(one.args) if isinstance(each, ast.arg)}
        own = parameters | {name for part in body for name in _stores(part)} - _declared(one)
        for part in body:
            self._inside(part, own)

    def _inside(self, one: ast.AST, own: set[str]) -> None:
        for part in ast.walk(one):
            if isinstance(part, (ast.Name, ast.Attribute)) and isinstance(part.ctx, ast.Load):
                name = _dotted(part)
                if name and name.split(".")[0] not in own:
                    self._get(name)


def _covered(name: str, stored: Iterable[str]) -> bool:
    """Whether it, or what holds it, is in ``stored``."""
    parts = name.split(".")
    known = set(stored)
    return any(".".join(parts[:count]) in known for count in range(1, len(parts) + 1))


def _dotted(one: ast.AST) -> str:
    """``"self.best"``; "" for what is no dotted name, or has too many parts."""
    parts: list[str] = []
    while isinstance(one, ast.Attribute):
        parts.append(one.attr)
        one = one.value
    if not isinstance(one, ast.Name):
        return ""
    parts.append(one.id)
    return ".".join(reversed(parts[-_DEPTH:]))


def _began_anew(call: ast.expr) -> str:
    """The object whose method begins it anew; else ""."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return ""
    anew = call.func.attr.startswith(_ANEW) and call.func.attr != "zero_grad"
    return _dotted(call.func.value) if anew else ""


def _stores(one: ast.AST) -> set[str]:
    return {
        part.id for part in ast.walk(one) if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)
    }


def _declared(one: ast.AST) -> set[str]:
    """Names that a function declares global or nonlocal."""
    return {
        name for part in ast.walk(one) if isinstance(part, (ast.Global, ast.Nonlocal)) for name in part.names
    }


def _loops_around(tree: ast.Module, line: int) -> tuple[list[ast.For | ast.AsyncFor | ast.While], ast.AST]:
    """The loops around ``line``, the innermost first, and the function or module that they are in."""
    scope: ast.AST = tree
    found: list[ast.For | ast.AsyncFor | ast.While] = []
    for part in _around(tree, line):
        if isinstance(part, _FUNCTIONS):
            scope, found = part, []
        elif isinstance(part, _LOOPS):
            found.append(part)
    return found[::-1], scope


def _around(one: ast.AST, line: int) -> Iterator[ast.AST]:
    """From the outermost on."""
    for part in ast.iter_child_nodes(one):
        if getattr(part, "lineno", line + 1) <= line <= (getattr(part, "end_lineno", None) or 0):
            yield part
            yield from _around(part, line)
        elif not hasattr(part, "lineno"):  # a case of a match
            yield from _around(part, line)


def _read_after(scope: ast.AST, loop: ast.stmt) -> set[str]:
    last = loop.end_lineno or loop.lineno
    return {
        name
        for part in ast.walk(scope)
        if isinstance(part, (ast.Name, ast.Attribute))
        and isinstance(part.ctx, ast.Load)
        and part.lineno > last
        and (name := _dotted(part))
    }


def _of_functions(tree: ast.Module) -> frozenset[str]:
    """What functions of the script may read of the script's own names before they set them: a loop may call them."""
    found: set[str] = set()
    for part in ast.walk(tree):
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
            flow = _Flow()
            flow.block(part.body)
            parameters = {each.arg for each in ast.walk(part.args) if isinstance(each, ast.arg)}
            own = (parameters | {name for each in part.body for name in _stores(each)}) - _declared(part)
            found |= {name for name in flow.exposed if name.split(".")[0] not in own}
    return frozenset(found)


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for part in ast.walk(tree):
        if isinstance(part, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and part.value is not None:
            for target in part.targets if isinstance(part, ast.Assign) else [part.target]:
                if name := _dotted(target):
                    yield name, part.value


def _from_clocks(tree: ast.Module) -> set[str]:
    return {
        name
        for name, value in _assigned(tree)
        if any(
            isinstance(part, ast.Call) and _dotted(part.func).rpartition(".")[2] in _CLOCKS
            for part in ast.walk(value)
        )
    }


def _class(tree: ast.AST, names: Sequence[str]) -> ast.ClassDef | None:
    """By its qualified name, as in ``Trainer`` or ``main.<locals>.Trainer``."""
    wanted = [name for name in names if name != "<locals>"]
    at: ast.AST = tree
    for name in wanted:
        found = next(
            (
                part
                for part in ast.walk(at)
                if isinstance(part, (ast.ClassDef, ast.FunctionDef)) and part.name == name and part is not at
            ),
            None,
        )
        if found is None:
            return None
        at = found
    return at if isinstance(at, ast.ClassDef) else None
