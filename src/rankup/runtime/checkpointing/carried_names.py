"""Which variables a loop of a script carries from one pass to the next, read from its source.

A name is carried if a pass may read it before the pass has set it (``best = max(best, accuracy)``,
``history.append(loss)``), or if a pass sets it only sometimes and it is read after the loop. What each pass sets first
is not carried, however it changes (``total = 0.0`` before an inner loop). Names are dotted: ``best``, ``self.best``,
``history.[loss]`` for ``history["loss"]``.

Calls of the script's own functions are followed, if the caller can say which function a name means: what they do with
their parameters (``state.best``, ``self.best``) and with names of their surroundings belongs to the pass.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

# What begins a pass anew by the name of its method: ``meter.reset()``, ``sampler.set_epoch(epoch.index)``.
_ANEW = ("reset", "clear", "restart", "zero_", "set_", "start", "begin")
_RESETS = ("reset", "clear", "restart", "zero_")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_TRY = (ast.Try, getattr(ast, "TryStar", ast.Try))  # from Python 3.11 on
_DEPTH = 4  # parts of a dotted name
SUPER = "super()"
_CALLS = 8  # of functions in each other
_NUMBERS = frozenset({"round", "float", "int", "str", "abs", "max", "min"})
_CLOCKS = frozenset({"time", "perf_counter", "monotonic", "process_time", "datetime", "now", "elapsed_time"})


@dataclass(frozen=True)
class Carried:
    """``names`` may be carried; ``anew`` are set in each pass before they are read. ``line``: of the loop."""

    names: frozenset[str]
    anew: frozenset[str]
    line: int


@dataclass(frozen=True)
class Called:
    """A function of the script. ``bound``: how many parts of its dotted name are the name of its first argument, less
    than all for a method; None for a plain function. ``look``: the functions that it calls, by their dotted names in
    it. ``outside``: the caller's name of a variable that is not the function's own, after a dot if it belongs to the
    function, after two if it belongs to what holds the function."""

    node: ast.FunctionDef | ast.AsyncFunctionDef
    source: str
    bound: int | None
    look: Callable[[str], Called | None]
    outside: Callable[[str], str]


@lru_cache(maxsize=64)
def parsed(source: str) -> ast.Module:
    """An empty module for what is no Python."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module(body=[], type_ignores=[])


def carried_around(
    source: str, line: int, look: Callable[[str], Called | None] = lambda _: None
) -> tuple[Carried, ...]:
    """Of the loops around ``line``, in their headers or bodies, the innermost first."""
    inside, scope = _loops_around(parsed(source), line)
    elsewhere = _of_functions(source) if inside else frozenset()
    clocks = _clocks_in(source, scope) if inside else frozenset()
    found = []
    for loop in inside:
        flow = _Flow(look=look)
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
def functions(source: str) -> Mapping[int, ast.FunctionDef | ast.AsyncFunctionDef]:
    """By the line that they begin in, with their decorators."""
    return {
        min([one.lineno, *(each.lineno for each in one.decorator_list)]): one
        for one in ast.walk(parsed(source))
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))
    }


@lru_cache(maxsize=64)
def carried_attributes(source: str, name: str) -> frozenset[str]:
    """Attributes of the class ``name`` (its qualified name) that a method may read before it sets them. Not those that
    only its ``__init__`` or a method that begins anew uses."""
    found: set[str] = set()
    tree = parsed(source)
    described = _class(tree, name.split("."))
    clocks = {dotted.rpartition(".")[2] for dotted in _clocks_in(source, None)}
    for method in described.body if described is not None else []:
        if not isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)) or not method.args.args:
            continue
        if method.name.startswith(("__init__", "__repr__", "__str__", *_RESETS)):
            continue
        me = method.args.args[0].arg + "."
        flow = _Flow()
        flow.block(method.body)
        found |= {dotted.removeprefix(me) for dotted in flow.exposed if dotted.startswith(me)}
    return frozenset(name for name in found - clocks if "." not in name)


@dataclass
class _Flow:
    """Of one pass: what it may read before it has set it, and what it sets."""

    exposed: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)  # on each way through what was read so far
    sometimes: set[str] = field(default_factory=set)  # on some way
    # ``stored`` where a continue or a break leaves an inner loop, and where a function returns
    left: list[set[str]] = field(default_factory=list)
    returned: list[set[str]] = field(default_factory=list)
    look: Callable[[str], Called | None] = lambda _: None
    entered: tuple[ast.AST, ...] = ()

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
        elif (
            isinstance(one, ast.Expr)
            and (began := _began_anew(one.value))
            and self.look(_method(one.value)) is None
        ):
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
            elif isinstance(one, ast.Return):
                self.returned.append(set(self.stored))
            return not isinstance(one, (ast.Continue, ast.Break, ast.Return, ast.Raise))
        return True

    def expression(self, one: ast.expr) -> None:
        if isinstance(one, _FUNCTIONS):
            self._function(one)
        elif isinstance(one, (ast.Name, ast.Attribute, ast.Subscript)) and (name := _dotted(one)):
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
            if isinstance(one, ast.Call):
                self._call(one)

    def store(self, target: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self.store(part)
        elif isinstance(target, ast.Starred):
            self.store(target.value)
        elif name := _dotted(target):
            self._put(name)
        elif isinstance(target, ast.Subscript):  # changes what is there
            self.expression(target.value)
            self.expression(target.slice)

    def _get(self, name: str) -> None:
        """Also of the object that an attribute belongs to; not of all of a dict."""
        whole = True
        while name and not _covered(name, self.stored):
            if whole:
                self.exposed.add(name)
            name, _, last = name.rpartition(".")
            whole = not last.startswith("[")

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

    def _call(self, call: ast.Call) -> None:
        """What a function of the script does with its parameters and with names of its surroundings."""
        found = self.look(_method(call))
        if found is None or found.node in self.entered or len(self.entered) == _CALLS:
            return
        name = _method(call)
        names = _arguments(found, call)
        own = _own(found.node)

        def look(dotted: str) -> Called | None:
            root, dot, rest = dotted.partition(".")
            if root in names:
                return self.look(names[root] + dot + rest)
            return None if root in own else found.look(dotted)

        inner = _Flow(look=look, entered=(*self.entered, found.node))
        if inner.block(found.node.body):
            inner.returned.append(inner.stored)

        def here(several: set[str]) -> Iterator[str]:
            for dotted in sorted(several):
                root, dot, rest = dotted.partition(".")
                if root in names:
                    if rest and root not in inner.sometimes:
                        yield _cut(names[root] + dot + rest)
                elif root not in own and (outside := found.outside(root)):
                    at = name.rpartition(".")[0] if outside.startswith("..") else name
                    where = f"{at}.{root}" if outside.startswith(".") else outside
                    yield _cut(where + dot + rest)

        for each in here(inner.exposed - _clocks_in(found.source, found.node)):
            self._get(each)
        always = set.intersection(*inner.returned) if inner.returned else set()
        self.sometimes |= set(here(inner.sometimes))
        for each in here(always):
            self._put(each)

    def _function(self, one: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        """What it may read of its surroundings."""
        body = [one.body] if isinstance(one, ast.Lambda) else one.body
        own = _own(one)
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
    return _cut(".".join(reversed(parts)))


def _key(one: ast.expr) -> str:
    """Of ``history["loss"]``; "" for what is no word."""
    value = one.value if isinstance(one, ast.Constant) else None
    return value if isinstance(value, str) and value.isidentifier() else ""


def _cut(name: str) -> str:
    return ".".join(name.split(".")[:_DEPTH])


def _method(call: ast.expr) -> str:
    """The dotted name of what is called; "" if it has none, or too many parts."""
    name = _dotted(call.func) if isinstance(call, ast.Call) else ""
    ends = (
        "." + call.func.attr
        if name and isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        else ""
    )
    return name if name.endswith(ends) else ""


def _arguments(found: Called, call: ast.Call) -> dict[str, str]:
    """The caller's dotted name of each parameter that is given one."""
    every = [each.arg for each in (*found.node.args.posonlyargs, *found.node.args.args)]
    given: dict[str, str] = {}
    if found.bound is not None and every:
        name = _method(call)
        given[every.pop(0)] = "self" if name.startswith(SUPER) else ".".join(name.split(".")[: found.bound])
    for name, value in zip(every, call.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        given[name] = _dotted(value)
    given |= {each.arg: _dotted(each.value) for each in call.keywords if each.arg}
    return {name: dotted for name, dotted in given.items() if dotted}


def _own(one: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> set[str]:
    """The names of a function's own variables."""
    body = [one.body] if isinstance(one, ast.Lambda) else one.body
    parameters = {each.arg for each in ast.walk(one.args) if isinstance(each, ast.arg)}
    return (parameters | {name for part in body for name in _stores(part)}) - _declared(one)


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


@lru_cache(maxsize=64)
def _of_functions(source: str) -> frozenset[str]:
    """What functions of the script may read of the script's own names before they set them: a loop may call them."""
    found: set[str] = set()
    for part in ast.walk(parsed(source)):
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
            flow = _Flow()
            flow.block(part.body)
            own = _own(part)
            found |= {name for name in flow.exposed if name.split(".")[0] not in own}
    return frozenset(found)


def _assigned(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for part in ast.walk(tree):
        if isinstance(part, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and part.value is not None:
            for target in part.targets if isinstance(part, ast.Assign) else [part.target]:
                if name := _dotted(target):
                    yield name, part.value


@lru_cache(maxsize=256)
def _clocks_in(source: str, scope: ast.AST | None) -> frozenset[str]:
    """Variables of ``scope``, and attributes in the whole file, that hold times of the clock."""
    own = set(_assigned(scope)) if scope is not None else set()
    assigned = own | {(name, value) for name, value in _assigned(parsed(source)) if "." in name}
    found: set[str] = set()
    while more := {name for name, value in assigned if name not in found and _is_clock(value, found)}:
        found |= more
    return frozenset(found)


def _is_clock(value: ast.expr, clocks: set[str]) -> bool:
    """A time, or a difference of two; not a list or a call of something that gets one."""
    if isinstance(value, ast.BinOp):
        return _is_clock(value.left, clocks) or _is_clock(value.right, clocks)
    if isinstance(value, ast.Call):
        name = _dotted(value.func).rpartition(".")[2]
        every = [value.func.value] if isinstance(value.func, ast.Attribute) else []
        if name in _NUMBERS or name in ("total_seconds", "timestamp"):
            return any(_is_clock(each, clocks) for each in (*every, *value.args))
        return name in _CLOCKS
    return _dotted(value) in clocks


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
