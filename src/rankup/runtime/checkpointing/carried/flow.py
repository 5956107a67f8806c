"""What a pass of a loop may read before it has set it, and what it sets; also in functions of the script."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from rankup.runtime.checkpointing.carried.clocks import clocks_in
from rankup.runtime.checkpointing.carried.syntax import (
    FUNCTIONS,
    LOOPS,
    SUPER,
    called_name,
    covered,
    cut,
    dotted,
    own_names,
    parts_of,
    stores,
)

# What begins a pass anew by the name of its method: ``meter.reset()``, ``sampler.set_epoch(epoch.index)``.
_ANEW = ("reset", "clear", "restart", "zero_", "set_", "start", "begin")
_TRY = (ast.Try, getattr(ast, "TryStar", ast.Try))  # from Python 3.11 on
_CALLS = 8  # of functions in each other


@dataclass(frozen=True)
class Called:
    """A function of the script. ``bound``: how many parts of its dotted name are the name of its first argument, less
    than all for a method; None for a plain function. ``look``: the functions that it calls, by their dotted names in
    it. ``outside``: the caller's name of a variable that is not the function's own, after a dot if it belongs to the
    function, after two if it belongs to what holds the function. ``held``: of parameters that a call may leave out,
    what the function has for them, as parts behind its dotted name: a default value, an argument of a ``partial``.
    ``taken``: how many of them come before the call's own arguments. ``around``: a decorator's function around it."""

    node: ast.FunctionDef | ast.AsyncFunctionDef
    source: str
    bound: int | None
    look: Callable[[str], Called | None]
    outside: Callable[[str], str]
    held: Mapping[str, str] = field(default_factory=dict)
    taken: int = 0
    around: Called | None = None


@dataclass
class Flow:
    """Of one pass: what it may read before it has set it, and what it sets."""

    exposed: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)  # on each way through what was read so far
    sometimes: set[str] = field(default_factory=set)  # on some way
    # ``stored`` where a continue or a break leaves an inner loop, and where a function returns
    left: list[set[str]] = field(default_factory=list)
    returned: list[set[str]] = field(default_factory=list)
    look: Callable[[str], Called | None] = lambda _: None
    entered: tuple[ast.AST, ...] = ()
    also: dict[str, str] = field(default_factory=dict)  # other names: ``mean = meters.loss``

    def block(self, statements: Sequence[ast.stmt]) -> bool:
        """Whether the code behind ``statements`` can be reached."""
        return all(self.statement(statement) for statement in statements)

    def statement(self, one: ast.stmt) -> bool:
        if isinstance(one, (ast.Assign, ast.AnnAssign)):
            if one.value is not None:
                self.expression(one.value)
                for target in one.targets if isinstance(one, ast.Assign) else [one.target]:
                    self.store(target)
                    if isinstance(target, ast.Name) and (there := dotted(one.value)):
                        self.also[target.id] = there
        elif isinstance(one, ast.AugAssign):
            self.expression(one.value)
            self.expression(one.target)
            self.store(one.target)
        elif isinstance(one, ast.If):
            self.expression(one.test)
            return self._branches([one.body, one.orelse])
        elif isinstance(one, LOOPS):
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
                    name for part in parts_of(case.pattern) if (name := getattr(part, "name", None))
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
            and self.look(called_name(one.value)) is None
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
        if isinstance(one, FUNCTIONS):
            self._function(one)
        elif isinstance(one, (ast.Name, ast.Attribute, ast.Subscript)) and (name := dotted(one)):
            self._get(name)
        elif isinstance(one, ast.NamedExpr):
            self.expression(one.value)
            self.store(one.target)
        elif isinstance(one, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            self._inside(one, stores(one))
        else:
            for part in ast.iter_child_nodes(one):
                if isinstance(part, ast.expr):
                    self.expression(part)
                elif isinstance(part, ast.keyword):
                    self.expression(part.value)
            if isinstance(one, ast.Call):
                if variable := _environment(one):
                    self._get(variable)
                self._call(one)

    def store(self, target: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self.store(part)
        elif isinstance(target, ast.Starred):
            self.store(target.value)
        elif name := dotted(target):
            self._put(name)
        elif isinstance(target, ast.Subscript):  # changes what is there
            self.expression(target.value)
            self.expression(target.slice)

    def _get(self, name: str) -> None:
        """Also of the object that an attribute belongs to; not of all of a dict."""
        root, dot, rest = name.partition(".")
        if rest and root in self.also and not covered(name, self.stored - {root}):
            there = self.also.pop(root)  # which may be named by another name, but not by itself
            self._get(cut(there + dot + rest))
            self.also[root] = there
        whole = True
        while name and not covered(name, self.stored):
            if whole:
                self.exposed.add(name)
            name, _, last = name.rpartition(".")
            whole = not last.startswith("[")

    def _put(self, name: str) -> None:
        self.also.pop(name, None)
        self.stored.add(name)
        self.sometimes.add(name)

    def _branches(self, branches: Sequence[Sequence[ast.stmt]]) -> bool:
        """One of ``branches`` runs. Afterwards a name is set if every branch sets it that does not leave the pass by
        a continue, a break, a return or an error. Whether there is such a branch."""
        before, ends = set(self.stored), []
        for branch in branches:
            self.stored = set(before)
            if self.block(branch):
                ends.append(self.stored)
        self.stored = set.intersection(*ends) if ends else before
        return bool(ends)

    def _call(self, call: ast.Call) -> None:
        """What a function of the script does with its parameters and with names of its surroundings."""
        found = self.look(called_name(call))
        while found is not None:
            self._called(found, call)
            found = found.around

    def _called(self, found: Called, call: ast.Call) -> None:
        if found.node in self.entered or len(self.entered) == _CALLS:
            return
        name = called_name(call)
        names = _arguments(found, call)
        own = own_names(found.node)

        def look(name_there: str) -> Called | None:
            root, dot, rest = name_there.partition(".")
            if root in names:
                return self.look(names[root] + dot + rest)
            return None if root in own else found.look(name_there)

        inner = Flow(look=look, entered=(*self.entered, found.node))
        if inner.block(found.node.body):
            inner.returned.append(inner.stored)

        def here(several: set[str]) -> Iterator[str]:
            for name_there in sorted(several):
                root, dot, rest = name_there.partition(".")
                if root in names:
                    # A whole argument is in the call itself.
                    if (rest or root in found.held) and root not in inner.sometimes:
                        yield cut(names[root] + dot + rest)
                elif root not in own and (outside := found.outside(root)):
                    at = name.rpartition(".")[0] if outside.startswith("..") else name
                    where = f"{at}.{outside.lstrip('.')}" if outside.startswith(".") else outside
                    yield cut(where + dot + rest)

        for each in here(inner.exposed - clocks_in(found.source, found.node)):
            self._get(each)
        always = set.intersection(*inner.returned) if inner.returned else set()
        self.sometimes |= set(here(inner.sometimes))
        for each in here(always):
            self._put(each)

    def _function(self, one: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        """What it may read of its surroundings."""
        body = [one.body] if isinstance(one, ast.Lambda) else one.body
        own = own_names(one)
        for part in body:
            self._inside(part, own)

    def _inside(self, one: ast.AST, own: Set[str]) -> None:
        for part in parts_of(one):
            if isinstance(part, (ast.Name, ast.Attribute)) and isinstance(part.ctx, ast.Load):
                name = dotted(part)
                if name and name.split(".")[0] not in own:
                    self._get(name)


def _arguments(found: Called, call: ast.Call) -> dict[str, str]:
    """The caller's dotted name of each parameter that is given one."""
    every = [each.arg for each in (*found.node.args.posonlyargs, *found.node.args.args)][found.taken :]
    name = called_name(call)
    given = {parameter: f"{name}.{part}" for parameter, part in found.held.items()}
    if found.bound is not None and every:
        given[every.pop(0)] = "self" if name.startswith(SUPER) else ".".join(name.split(".")[: found.bound])
    for name, value in zip(every, call.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        given[name] = dotted(value)
    given |= {each.arg: dotted(each.value) for each in call.keywords if each.arg}
    return {name: there for name, there in given.items() if there}


def _environment(call: ast.Call) -> str:
    """``os.environ.[STEP]`` of ``os.environ.get("STEP")`` and ``os.getenv("STEP")``; else ""."""
    key = call.args[0] if call.args else None
    name = key.value if isinstance(key, ast.Constant) else None
    if not isinstance(name, str) or not name.isidentifier():
        return ""
    module, _, function = dotted(call.func).rpartition(".")
    if function == "getenv" and module:
        return f"{module}.environ.[{name}]"
    return f"{module}.[{name}]" if module.endswith("environ") and function in ("get", "setdefault") else ""


def _began_anew(call: ast.expr) -> str:
    """The object whose method begins it anew; else ""."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return ""
    anew = call.func.attr.startswith(_ANEW) and call.func.attr != "zero_grad"
    return dotted(call.func.value) if anew else ""
