"""Which statements run only on some ranks."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from rankup.check.facts.program.calls import CallGraph
from rankup.check.facts.program.module import Module, Scope, last_name
from rankup.check.facts.program.sounds import FIRST_RANK, sounds
from rankup.check.facts.program.value import Kind, Test
from rankup.check.facts.program.values import Values

_NEGATABLE = (ast.If, ast.IfExp)


@dataclass(frozen=True, eq=False)
class Guard:
    """A condition that has to hold for a statement to run."""

    test: Test
    at: ast.AST  # the if, the early return, the decorator
    module: Module
    early: bool = False  # by an earlier ``if …: return``
    called: bool = False  # by all places that call the function

    @property
    def only_first(self) -> bool:
        return self.test.first and not self.test.either

    @property
    def sure_first(self) -> bool:
        """Whether all but one rank of a node, or of all, are certainly left out."""
        return self.test.sure and self.only_first and self.test.of is not Kind.NODE_RANK

    @property
    def line(self) -> int:
        return getattr(self.at, "lineno", 0)


class Guards:
    """Asks under which conditions on the rank a node runs."""

    def __init__(self, graph: CallGraph, values: Values) -> None:
        self.graph = graph
        self.values = values
        self._of: dict[ast.AST, list[Guard]] = {}
        self._of_function: dict[Scope, list[Guard]] = {}
        self._active: set[Scope] = set()

    def of(self, node: ast.AST, scope: Scope) -> list[Guard]:
        """The conditions inside the function that holds ``node``, the innermost first."""
        if node not in self._of:
            self._look(node, scope)
        return self._of[node]

    def everywhere(self, node: ast.AST, scope: Scope) -> list[Guard]:
        """Also those of the function itself: its decorators, and the conditions that all its callers share."""
        return [*self.of(node, scope), *self.of_function(scope)]

    def first_only(self, node: ast.AST, scope: Scope) -> bool:
        """Whether a statement runs on a first rank only, as far as can be seen or its names promise."""
        return any(guard.test.first for guard in self.everywhere(node, scope))

    def limited(self, node: ast.AST, scope: Scope) -> bool:
        return bool(self.everywhere(node, scope))

    # -- inside a function

    def _look(self, node: ast.AST, scope: Scope) -> None:
        """The conditions of a node are those of what holds it, and one step more: each step is looked at once."""
        steps: list[tuple[ast.AST, ast.AST, str]] = []
        inner = node
        around: list[Guard] = []
        for holder, field in scope.module.ancestors(node):
            steps.append((inner, holder, field))
            inner = holder
            if inner in scope.module.scopes:
                break
            if inner in self._of:
                around = self._of[inner]
                break
        for one, holder, field in reversed(steps):
            around = [*self._step(one, holder, field, scope), *around]
            self._of[one] = around
        self._of.setdefault(node, around)

    def _step(self, inner: ast.AST, holder: ast.AST, field: str, scope: Scope) -> list[Guard]:
        """The conditions that ``holder`` puts on ``inner``, which it holds."""
        found: list[Guard] = []
        if isinstance(holder, _NEGATABLE) and field in {"body", "orelse"}:
            test = self.values.test(holder.test, scope)
            if test is not None:
                found.append(Guard(test if field == "body" else test.negated(), holder, scope.module))
        elif isinstance(holder, ast.BoolOp) and isinstance(inner, ast.expr):
            for earlier in holder.values:
                if earlier is inner:
                    break
                test = self.values.test(earlier, scope)
                if test is not None:
                    both = isinstance(holder.op, ast.And)
                    found.append(Guard(test if both else test.negated(), holder, scope.module))
        return [*found, *self._early(inner, holder, field, scope)]

    def _early(self, inner: ast.AST, holder: ast.AST, field: str, scope: Scope) -> list[Guard]:
        """The conditions that earlier statements of the same block leave by ``return``, ``continue`` or exit."""
        block = getattr(holder, field, None)
        if not isinstance(block, list):
            return []
        found: list[Guard] = []
        for statement in block:
            if statement is inner:
                break
            if isinstance(statement, ast.If):
                ends, otherwise = leaves(statement.body), leaves(statement.orelse)
                if ends != otherwise:
                    test = self.values.test(statement.test, scope)
                    if test is not None:
                        kept = test.negated() if ends else test
                        found.append(Guard(kept, statement, scope.module, early=True))
        return found

    # -- of a function

    def of_function(self, scope: Scope) -> list[Guard]:
        if scope in self._of_function:
            return self._of_function[scope]
        if scope in self._active or not scope.is_function:
            return []
        self._active.add(scope)
        try:
            found = self._by_decorator(scope) + self._by_callers(scope)
        finally:
            self._active.discard(scope)
        if not self._active:
            self._of_function[scope] = found
        return found

    def _by_decorator(self, scope: Scope) -> list[Guard]:
        found = []
        for decorator in getattr(scope.node, "decorator_list", []):
            target = decorator
            name = last_name(target)
            if sounds(name, (*FIRST_RANK, "on_main", "on_local")):
                kind = Kind.LOCAL_RANK if "local" in name else Kind.RANK
                found.append(Guard(Test(kind, True, sure=False), decorator, scope.module, called=True))
        return found

    def _by_callers(self, scope: Scope) -> list[Guard]:
        sites = self.graph.sites.get(scope, [])
        if not sites or any(site.unknown and not site.call.spread for site in sites):
            return []
        shared: list[Guard] | None = None
        for site in sites:
            here = self.everywhere(site.call.node, site.call.scope)
            if not here:
                return []
            if shared is None:
                shared = here
            else:
                sides = {(guard.test.of, guard.test.first) for guard in here}
                shared = [guard for guard in shared if (guard.test.of, guard.test.first) in sides]
        return [Guard(g.test, g.at, g.module, g.early, called=True) for g in shared or ()]


def leaves(block: list[ast.stmt]) -> bool:
    """Whether a block ends the function, the loop's turn or the process."""
    if not block:
        return False
    last = block[-1]
    if isinstance(last, (ast.Return, ast.Continue, ast.Break)):
        return True
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return last_name(last.value) in {"exit", "_exit", "quit"}
    if isinstance(last, ast.If) and last.orelse:
        return leaves(last.body) and leaves(last.orelse)
    return False
