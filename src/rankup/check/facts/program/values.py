"""Where the values of a program come from: from rank variables through names, parameters, attributes and returns."""

from __future__ import annotations

import ast

from rankup.check.facts.program import names
from rankup.check.facts.program.calls import CallGraph, Site, starred
from rankup.check.facts.program.conditions import connected, named_test
from rankup.check.facts.program.environ import of_launcher, sets_variable
from rankup.check.facts.program.imports import Project, local_target
from rankup.check.facts.program.module import Call, Definition, Module, Scope, default_of, full_name
from rankup.check.facts.program.operators import arithmetic, comparison, formatted_text, unary
from rankup.check.facts.program.reaching import reaching
from rankup.check.facts.program.results import known_result
from rankup.check.facts.program.value import (
    KIND_OF_NAME,
    NOTHING,
    RANKS,
    UNKNOWN,
    Atom,
    Kind,
    Test,
    Value,
    constant,
    constants,
    is_only,
    kinds,
    part_of,
    tests,
    the_constant,
    union,
)

_DEEPEST = 40


class Values:
    """Asks where a value comes from, on demand, and remembers the answers."""

    def __init__(self, project: Project, graph: CallGraph) -> None:
        self.project = project
        self.graph = graph
        self._known: dict[ast.AST, Value] = {}
        self._active: set[object] = set()
        self._attributes: dict[str, list[tuple[Definition, Scope]]] = {}
        self._options: dict[str, list[Call]] = {}
        self._properties: dict[str, list[Scope]] = {}
        self._call_of: dict[ast.AST, Call] = {}
        for module in project:
            for scope in module.scopes.values():
                if scope.is_property:
                    self._properties.setdefault(scope.name, []).append(scope)
                for name, found in scope.definitions.items():
                    if name.startswith(".") or scope.is_class:
                        key = name if name.startswith(".") else "." + name
                        self._attributes.setdefault(key, []).extend((d, scope) for d in found)
            for call in module.calls:
                self._call_of[call.node] = call
                if call.last == "add_argument":
                    self._note_option(call)

    def _note_option(self, call: Call) -> None:
        given = [a.value for a in call.node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        named = call.argument("dest")
        if isinstance(named, ast.Constant) and isinstance(named.value, str):
            self._options.setdefault(named.value, []).append(call)
        elif given:
            long = next((name for name in given if name.startswith("--")), given[0])
            self._options.setdefault(long.lstrip("-").replace("-", "_"), []).append(call)

    # -- what an expression can be

    def of(self, node: ast.AST | None, scope: Scope) -> Value:
        if node is None:
            return NOTHING
        if node in self._known:
            return self._known[node]
        if node in self._active:
            return NOTHING
        if len(self._active) > _DEEPEST:
            return UNKNOWN
        self._active.add(node)
        try:
            value = self._evaluate(node, scope)
        finally:
            self._active.discard(node)
        self._known[node] = value
        return value

    def _evaluate(self, node: ast.AST, scope: Scope) -> Value:
        if isinstance(node, ast.Constant):
            return constant(node.value)
        if isinstance(node, ast.Name):
            return self.name(node, scope)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, scope)
        if isinstance(node, ast.Subscript):
            return self._subscript(node, scope)
        if isinstance(node, ast.Call):
            return self._call(node, scope)
        if isinstance(node, ast.IfExp):
            return self.of(node.body, scope) | self.of(node.orelse, scope)
        if isinstance(node, (ast.Tuple, ast.List)):
            if any(isinstance(part, ast.Starred) for part in node.elts) or len(node.elts) > 64:
                return UNKNOWN
            return frozenset({Atom(Kind.SEQUENCE, tuple(self.of(part, scope) for part in node.elts))})
        if isinstance(node, ast.BinOp):
            return arithmetic(self, node, scope)
        if isinstance(node, ast.BoolOp):
            operands = [self.of(part, scope) for part in node.values]
            return connected(isinstance(node.op, ast.And), node.values, operands) or union(operands)
        if isinstance(node, ast.Compare):
            return comparison(self, node, scope)
        if isinstance(node, ast.UnaryOp):
            return unary(self, node, scope)
        if isinstance(node, ast.JoinedStr):
            return formatted_text(self, node, scope)
        if isinstance(node, ast.NamedExpr):
            return self.of(node.value, scope)
        if isinstance(node, ast.Await):
            return self.of(node.value, scope)
        return UNKNOWN

    # -- names

    def name(self, node: ast.Name, scope: Scope) -> Value:
        at: Scope | None = scope
        while at is not None:
            if not at.is_class or at is scope:
                found = self._name_in(node, at, at is scope)
                if found is not None:
                    return found
            at = at.parent
        module = scope.module
        if node.id in module.imports:
            target = local_target(self.project, module, module.imports[node.id])
            if target is not None and target[1]:
                return self._of_module(target[0], target[1])
            return self._named(module.imports[node.id]) or UNKNOWN
        for other in starred(self.project, module):
            if node.id in other.scope.definitions or node.id in other.scope.functions:
                return self._of_module(other, node.id)
        return UNKNOWN

    def _name_in(self, node: ast.Name, at: Scope, same: bool) -> Value | None:
        if node.id in at.outer:
            return None
        definitions = at.definitions.get(node.id)
        if definitions is None and node.id not in at.all_parameters:
            if node.id in at.functions:
                return frozenset({Atom(Kind.FUNCTION, at.functions[node.id])})
            return None
        found, whole = list(definitions or ()), False
        if same:
            found, whole = reaching(found, node, at.module)
        value = union(self._definition(d, at) for d in found)
        if node.id in at.all_parameters and not whole:
            value |= self.parameter(at, node.id)
        if not at.parent:  # a module's name can be set from a function, with global
            for other in at.module.scopes.values():
                if node.id in other.outer:
                    value |= union(self._definition(d, other) for d in other.definitions.get(node.id, ()))
        return value if value or self._active else UNKNOWN

    def _of_module(self, module: Module, name: str) -> Value:
        if name in module.scope.functions:
            return frozenset({Atom(Kind.FUNCTION, module.scope.functions[name])})
        found = module.scope.definitions.get(name, [])
        return union(self._definition(d, module.scope) for d in found) if found else UNKNOWN

    def _definition(self, definition: Definition, scope: Scope) -> Value:
        if definition.value is None:
            return UNKNOWN
        value = self.of(definition.value, scope)
        if definition.item:
            inner = self._item(definition.value, value, scope)
            return part_of(inner, definition.path)
        return part_of(value, definition.path)

    def _item(self, node: ast.expr, value: Value, scope: Scope) -> Value:
        """What a loop's variable can be."""
        if len(value) == 1:
            (atom,) = value
            if atom.kind is Kind.SEQUENCE and atom.detail:
                return union(atom.detail)
        return frozenset({Atom(Kind.ITEM, (value,))})

    def parameter(self, scope: Scope, name: str) -> Value:
        key = (scope, name)
        if key in self._active:
            return NOTHING
        sites = self.graph.sites.get(scope, [])
        if not sites or len(sites) > 60 or name not in {*scope.all_parameters}:
            return UNKNOWN
        self._active.add(key)
        try:
            return union(self._passed(site, name) for site in sites)
        finally:
            self._active.discard(key)

    def _passed(self, site: Site, name: str) -> Value:
        if site.passes_index(name):
            return frozenset({Atom(Kind.LOCAL_RANK, "spawn")})
        given = site.argument(name)
        if given is not None and not isinstance(given, ast.Starred):
            value = self.of(given, site.call.scope)
            if site.call.last == "Process" and kinds(value) == {Kind.ITEM}:
                return frozenset({Atom(Kind.LOCAL_RANK, "spawn")})
            return value
        if site.unknown:
            return UNKNOWN
        default = default_of(site.function, name)
        return self.of(default, site.function.parent or site.function) if default is not None else UNKNOWN

    # -- attributes and items

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Value:
        full = full_name(scope.module, scope, node)
        known = self._named(full)
        if known is not None:
            return known
        if full:
            target = local_target(self.project, scope.module, full)
            if target is not None and target[1] and "." not in target[1]:
                return self._of_module(target[0], target[1])
        if node.attr == "environ" and full == "os.environ":
            return frozenset({Atom(Kind.ENVIRONMENT)})
        return self.field(node.attr, node.value, scope)

    def _named(self, full: str) -> Value | None:
        if full == "os.environ":
            return frozenset({Atom(Kind.ENVIRONMENT)})
        if full.startswith("idr_torch") and full in KIND_OF_NAME:
            return frozenset({Atom(KIND_OF_NAME[full], full)})
        return None

    def field(self, attribute: str, base: ast.AST | None, scope: Scope) -> Value:
        """``x.attribute`` or ``x["attribute"]``: whatever the project gives such an attribute, on any object."""
        found = self._attributes.get("." + attribute, [])
        options = self._options.get(attribute, [])
        value = union(self._definition(d, s) for d, s in found[:40]) if found else NOTHING
        for call in options:
            value |= self._option(attribute, call)
        for function in self._properties.get(attribute, ()):
            value |= self.returned(function)
        if attribute in names.FIRST_RANK_ATTRIBUTES and not value:
            of = Kind.LOCAL_RANK if "local" in attribute else Kind.RANK
            return frozenset({Atom(Kind.TEST, Test(of, True, sure=True))})
        if found or options or attribute in self._properties:
            return value
        if attribute in names.RANK_ATTRIBUTES:
            return frozenset({Atom(Kind.RANK, attribute)})
        if attribute in names.LOCAL_RANK_ATTRIBUTES:
            return frozenset({Atom(Kind.LOCAL_RANK, attribute)})
        if attribute in {"local_rank", "global_rank", "num_tasks"} and base is not None:
            for atom in self.of(base, scope):
                made = atom.call
                if made is not None and made.name in {
                    "submitit.JobEnvironment",
                    "submitit.helpers.JobEnvironment",
                }:
                    return frozenset({Atom(_JOB_ENVIRONMENT[attribute], attribute)})
        return UNKNOWN

    def _option(self, name: str, call: Call) -> Value:
        kind = Kind.LOCAL_RANK if name == "local_rank" else Kind.OPTION
        default = call.argument("default")
        fallback = self.of(default, call.scope) if default is not None else NOTHING
        return fallback | {Atom(kind, name)}

    def options(self, name: str) -> list[Call]:
        """The ``add_argument`` calls of an option."""
        return self._options.get(name, [])

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Value:
        base = self.of(node.value, scope)
        key = self.of(node.slice, scope)
        if Kind.ENVIRONMENT in kinds(base):
            return self.variable(key)
        if kinds(base) == {Kind.DEVICE_LIST}:
            return frozenset({Atom(Kind.DEVICE_LIST, "item")})
        index = the_constant(key)
        if isinstance(index, int) and not isinstance(index, bool):
            return part_of(base, (index,))
        if isinstance(index, str):
            return self.field(index, node.value, scope)
        return UNKNOWN

    def variable(self, key: Value, default: Value = NOTHING) -> Value:
        """A variable of the environment: what the program itself always puts there, or what launchers do."""
        read = constants(key)
        written = [self._written(name) for name in read]
        return union(written) if written and all(written) else of_launcher(read, default)

    def _written(self, name: str) -> Value:
        """The rank that ``os.environ[name] = …`` always puts there; nothing if it is anything else."""
        mark = ("environ", name)
        if mark in self._active:
            return NOTHING
        self._active.add(mark)
        try:
            places = self._attributes.get(f".{name}", ())
            found = [self._definition(d, scope) for d, scope in places if sets_variable(d, scope)]
        finally:
            self._active.discard(mark)
        return union(found) if found and all(kinds(value) <= set(RANKS) for value in found) else NOTHING

    # -- calls

    def call(self, node: ast.AST) -> Call | None:
        return self._call_of.get(node)

    def _call(self, node: ast.Call, scope: Scope) -> Value:
        call = self._call_of.get(node)
        if call is None:  # pragma: no cover - every call is noted
            return UNKNOWN
        known = known_result(self, call, scope)
        if known is not None:
            return known
        targets = self.graph.called.get(call, [])
        followed = [t for t in targets if t in self.graph.functions(node.func, scope)]
        if followed and not call.name.startswith("torch."):
            results = union(self.returned(target) for target in followed)
            return results or UNKNOWN
        return named_test(node.func) or frozenset({Atom(Kind.OBJECT, call)})

    def returned(self, function: Scope) -> Value:
        """What a local function returns."""
        key = (function, "return")
        if key in self._active:
            return NOTHING
        self._active.add(key)
        try:
            if isinstance(function.node, ast.Lambda):
                return self.of(function.node.body, function)
            if not function.returns:
                return constant(None)
            return union(self.of(value, function) for value in function.returns)
        finally:
            self._active.discard(key)

    # -- conditions

    def test(self, node: ast.AST, scope: Scope) -> Test | None:
        """On which ranks a condition is true; None if it does not depend on the rank."""
        value = self.of(node, scope)
        found = tests(value)
        if found:
            sure = all(test.sure for test in found) and len({test.first for test in found}) == 1
            others = [atom for atom in value if atom.kind not in {Kind.TEST, Kind.CONSTANT}]
            # A function that answers True without a process group is a test of the rank within one.
            return Test(found[0].of, found[0].first, sure and not others, found[0].partly, found[0].either)
        for kind in RANKS:
            if is_only(value, kind):
                return Test(kind, False, sure=True)
        if isinstance(node, (ast.Name, ast.Attribute)):
            named = tests(named_test(node) or NOTHING)
            return named[0] if named else None
        return None


_JOB_ENVIRONMENT = {"local_rank": Kind.LOCAL_RANK, "global_rank": Kind.RANK, "num_tasks": Kind.WORLD_SIZE}
