"""Who calls whom inside a project: each local function with the places that call it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from rankup.check.facts.program_imports import Project, absolute, local_target
from rankup.check.facts.program_module import Call, Module, Scope, dotted
from rankup.check.facts.program_names import words

#: Methods of torch's own objects: a local method with such a name is linked only if the object is known.
_COMMON_METHODS = set(
    words(
        """
    train eval forward backward step to cuda cpu load_state_dict state_dict parameters set_epoch update reset zero_grad
    item append add get items keys values log close write read run compute size save load sync synchronize __init__ wait
    start join apply format split strip copy detach float half double mean sum max min print info debug scale
    """
    )
)


@dataclass(eq=False, repr=False)
class Site:
    """A place that calls a local function."""

    call: Call
    function: Scope
    arguments: list[ast.expr]  # from the first parameter after self
    keywords: dict[str, ast.expr]
    skipped: int = 0  # parameters that get no argument here: self
    spawned: bool = False  # by mp.spawn, which passes the process's index on the node first
    unknown: bool = False  # what is passed cannot be told

    def argument(self, name: str) -> ast.expr | None:
        if name in self.keywords:
            return self.keywords[name]
        if name in self.function.parameters:
            index = self.function.parameters.index(name) - self.skipped - self.spawned
            if 0 <= index < len(self.arguments):
                return self.arguments[index]
        return None

    def passes_index(self, name: str) -> bool:
        """Whether this parameter gets the process's index from mp.spawn."""
        parameters = self.function.parameters
        return self.spawned and len(parameters) > self.skipped and parameters[self.skipped] == name


class CallGraph:
    """Links calls and local functions by name, without values."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.sites: dict[Scope, list[Site]] = {}
        self.called: dict[Call, list[Scope]] = {}
        self._methods: dict[str, list[Scope]] = {}
        for module in project:
            for scope in module.scopes.values():
                if scope.is_class:
                    for name, method in scope.functions.items():
                        self._methods.setdefault(name, []).append(method)
        for module in project:
            for call in module.calls:
                self._link(call)

    def _link(self, call: Call) -> None:
        starting = _started(call)
        if starting is not None:
            function, passed, spawned = starting
            known = isinstance(passed, (ast.Tuple, ast.List))
            arguments = passed.elts if isinstance(passed, (ast.Tuple, ast.List)) else []
            for target in self.functions(function, call.scope):
                self._add(call, target, arguments, {}, spawned, unknown=passed is not None and not known)
            return
        targets = self.functions(call.node.func, call.scope)
        for target in targets:
            self._add(
                call,
                target,
                call.node.args,
                {k.arg: k.value for k in call.node.keywords if k.arg},
                unknown=call.spread,
            )
        for argument in (
            *call.node.args,
            *(k.value for k in call.node.keywords),
        ):  # a function that is handed to something else: nobody knows how it is called
            if isinstance(argument, (ast.Name, ast.Attribute)):
                for target in self.functions(argument, call.scope, methods=False):
                    if target.is_function:
                        self._add(call, target, [], {}, unknown=True)

    def _add(
        self,
        call: Call,
        target: Scope,
        arguments: list[ast.expr],
        keywords: dict[str, ast.expr],
        spawned: bool = False,
        unknown: bool = False,
    ) -> None:
        function = target
        if target.is_class:
            found = self.method(target, "__init__")
            if found is None:
                return
            function = found
        skipped = 1 if function.is_method and not _names_the_class(call, function) else 0
        site = Site(call, function, arguments, keywords, skipped, spawned, unknown)
        self.sites.setdefault(function, []).append(site)
        self.called.setdefault(call, []).append(function)

    def method(self, scope: Scope, name: str, depth: int = 0) -> Scope | None:
        """A method of a local class, or of a local class that it extends."""
        if name in scope.functions:
            return scope.functions[name]
        if isinstance(scope.node, ast.ClassDef) and depth < 5:
            for base in scope.node.bases:
                for parent in self.functions(base, scope.parent or scope):
                    found = self.method(parent, name, depth + 1) if parent.is_class else None
                    if found is not None:
                        return found
        return None

    def functions(self, node: ast.AST, scope: Scope, methods: bool = True) -> list[Scope]:
        """The local functions or classes that an expression names."""
        if isinstance(node, ast.Name):
            found = self.named(node.id, scope)
            return [found] if found is not None else []
        if not isinstance(node, ast.Attribute):
            return []
        parts = dotted(node)
        if parts is not None and parts[0] in scope.module.imports:
            full = ".".join([scope.module.imports[parts[0]], *parts[1:]])
            target = local_target(self.project, scope.module, full)
            found = _inside(target[0].scope, target[1]) if target is not None else None
            if found is not None:
                return [found]
            if full.partition(".")[0] not in self.project.modules and not full.startswith("."):
                return []
        if not methods:
            return []
        return list(self._methods_of(node, scope))

    def _methods_of(self, node: ast.Attribute, scope: Scope) -> Iterator[Scope]:
        holder = self.class_of(node.value, scope)
        if holder is not None:
            found = self.method(holder, node.attr)
            if found is not None:
                yield found
                return
        if node.attr not in _COMMON_METHODS:
            yield from self._methods.get(node.attr, ())

    def class_of(self, node: ast.AST, scope: Scope) -> Scope | None:
        """The local class that an object is made from, where that can be seen at once: self, or ``x = Class()``."""
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "super":
                return None
            named = self.functions(node.func, scope, methods=False)
            return named[0] if named and named[0].is_class else None
        if not isinstance(node, ast.Name):
            return None
        at: Scope | None = scope
        while at is not None:
            if at.parent is not None and at.parent.is_class and at.parameters[:1] == [node.id]:
                return at.parent
            for definition in at.definitions.get(node.id, ()):
                if isinstance(definition.value, ast.Call):
                    named = self.functions(definition.value.func, at, methods=False)
                    if named and named[0].is_class:
                        return named[0]
            at = at.parent
        return None

    def named(self, name: str, scope: Scope) -> Scope | None:
        """The local function or class that a name means inside ``scope``."""
        at: Scope | None = scope
        while at is not None:
            if not at.is_class or at is scope:
                if name in at.functions:
                    return at.functions[name]
                if name in at.definitions or name in at.all_parameters:
                    return None
            at = at.parent
        module = scope.module
        if name in module.imports:
            target = local_target(self.project, module, module.imports[name])
            return _inside(target[0].scope, target[1]) if target is not None else None
        for other in starred(self.project, module):
            if name in other.scope.functions:
                return other.scope.functions[name]
        return None

    def reached(self, scope: Scope, depth: int = 4) -> set[Scope]:
        """The local functions that run when ``scope`` runs, itself included."""
        found, waiting = {scope}, [(scope, depth)]
        while waiting:
            at, left = waiting.pop()
            for call in at.calls if left else ():
                for target in self.called.get(call, ()):
                    if target not in found:
                        found.add(target)
                        waiting.append((target, left - 1))
        return found


def starred(project: Project, module: Module) -> list[Module]:
    """Local modules of which a module takes all names."""
    names = [absolute(module, name, level) for name, level, names in module.imported if "*" in names]
    return [project.modules[name] for name in names if name in project.modules]


def _inside(scope: Scope, path: str) -> Scope | None:
    for part in path.split("."):
        if part not in scope.functions:
            return None
        scope = scope.functions[part]
    return scope


def _names_the_class(call: Call, function: Scope) -> bool:
    """``Class.method(object, …)``: self is passed in the open."""
    base = call.base
    return (
        isinstance(base, ast.Name)
        and function.parent is not None
        and base.id == function.parent.name
        and function.name != "__init__"
    )


def _started(call: Call) -> tuple[ast.expr, ast.expr | None, bool] | None:
    """The function that a call starts in other processes, what it passes, and whether it passes an index first."""
    last = call.last
    if last in {"spawn", "start_processes"} and (
        call.name.startswith(("torch.multiprocessing", "torch_xla", "multiprocessing")) or not call.name
    ):
        function = call.argument("fn", 0)
        passed = call.argument("args", 1)
        if function is None:
            return None
        return function, passed, True
    if last in {"Process", "Thread"}:
        function = call.argument("target", 1)
        passed = call.argument("args", 3)
        if function is None:
            return None
        return function, passed, False
    return None
