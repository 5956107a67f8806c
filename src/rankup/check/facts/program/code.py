"""A program's calls, values and conditions, over all of its modules: what facts about data and saves are read from."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from rankup.check.document import Document, Span
from rankup.check.facts.program.calls import CallGraph
from rankup.check.facts.program.frameworks import Does, Framework, frameworks_of
from rankup.check.facts.program.guards import Guard, Guards
from rankup.check.facts.program.imports import Project, is_entry
from rankup.check.facts.program.module import Call, Module, Scope
from rankup.check.facts.program.names import COLLECTIVES, is_collective, torch_name
from rankup.check.facts.program.value import Kind, Test, Value, kinds, objects
from rankup.check.facts.program.values import Values
from rankup.check.facts.program.walk import read_module
from rankup.check.facts.start import Start
from rankup.sites.site import Site


@dataclass(frozen=True)
class SyntaxMistake:
    """Where Python stops reading a text, and what it says."""

    span: Span
    message: str


@dataclass
class ProgramCode:
    """The code of a Python program, with the local modules that it imports.

    ``project`` is empty for a text that is no Python; then there are no facts but ``syntax_error``.
    """

    document: Document
    site: Site | None = None
    starts: list[Start] = field(default_factory=list)  # by the job scripts that are checked with it
    syntax_error: SyntaxMistake | None = None
    project: Project = field(init=False)
    walked: dict[tuple[ast.AST, Scope, int], list[tuple[ast.AST, Scope, list[ast.AST]]]] = field(
        init=False, default_factory=dict, repr=False
    )  # what ``sharding`` has looked at

    def __post_init__(self) -> None:
        self.project = Project(read_module(self.document, ast.Module([], [])))

    @cached_property
    def modules(self) -> list[Module]:
        return list(self.project)

    @cached_property
    def entry(self) -> bool:
        """Whether the file does something when it is run; else it is a module that others import."""
        return is_entry(self.project.main.tree)

    @cached_property
    def whole(self) -> bool:
        """Whether all of the program is known, so that something may be concluded from what is absent."""
        return (
            self.entry
            and not self.project.missing
            and all(module.document.complete for module in self.modules)
        )

    # -- calls

    @cached_property
    def calls(self) -> list[Call]:
        return [call for module in self.modules for call in module.calls]

    @cached_property
    def _by_name(self) -> dict[str, list[Call]]:
        found: dict[str, list[Call]] = {}
        for call in self.calls:
            if call.name:
                found.setdefault(call.name, []).append(call)
                short = torch_name(call.name)
                if short:
                    found.setdefault(short, []).append(call)
        return found

    @cached_property
    def _by_last(self) -> dict[str, list[Call]]:
        found: dict[str, list[Call]] = {}
        for call in self.calls:
            found.setdefault(call.last, []).append(call)
        return found

    def named(self, *names: str) -> list[Call]:
        """Calls by full name, or by the last part of a name of torch: ``DistributedSampler``."""
        return [call for name in names for call in self._by_name.get(name, ())]

    def methods(self, *names: str) -> list[Call]:
        """Calls of methods (or functions) with these last names, on whatever object."""
        return [call for name in names for call in self._by_last.get(name, ())]

    # -- values and conditions

    @cached_property
    def graph(self) -> CallGraph:
        return CallGraph(self.project)

    @cached_property
    def values(self) -> Values:
        return Values(self.project, self.graph)

    @cached_property
    def guards(self) -> Guards:
        return Guards(self.graph, self.values)

    def value(self, call: Call, keyword: str, position: int | None = None) -> Value:
        """What an argument of a call can be; nothing if it is not given."""
        return self.values.of(call.argument(keyword, position), call.scope)

    def made(self, node: ast.AST | None, scope: Scope) -> list[Call]:
        """The calls that an object can come from."""
        return objects(self.values.of(node, scope))

    def surely(self, node: ast.AST | None, scope: Scope, is_one: Callable[[Call], bool]) -> bool:
        """Whether a value comes from calls of one kind, whatever happens."""
        value = self.values.of(node, scope)
        return kinds(value) == {Kind.OBJECT} and all(map(is_one, objects(value)))

    def within(self, call: Call, depth: int = 4) -> list[Call]:
        """A call, and those of the local functions that it runs."""
        reached = [s for target in self.graph.called.get(call, ()) for s in self.graph.reached(target, depth)]
        return [call, *(inner for scope in reached for inner in scope.calls)]

    @cached_property
    def _training(self) -> set[Scope]:
        """The functions that call backward(), or a function that does."""
        found: set[Scope] = set()
        waiting = [call.scope for call in self.methods("backward")]
        while waiting:
            scope = waiting.pop()
            if scope not in found:
                found.add(scope)
                waiting += [site.call.scope for site in self.graph.sites.get(scope, ())]
        return found

    def trains(self, call: Call) -> bool:
        """Whether a call is a backward pass, or leads to one."""
        return call.last == "backward" or any(
            scope in self._training for scope in self.graph.called.get(call, ())
        )

    def first_rank_guard(self, call: Call) -> Guard | None:
        """The condition that certainly leaves out all ranks but one, in the call's function or around it."""
        guards = self.guards.everywhere(call.node, call.scope)
        return next((guard for guard in guards if guard.sure_first), None)

    def first_only(self, call: Call) -> bool:
        """Whether a call runs on a first rank only, as far as can be seen or its names promise."""
        return self.guards.first_only(call.node, call.scope)

    def rank_test(self, node: ast.AST, scope: Scope) -> Test | None:
        return self.values.test(node, scope)

    # -- what it uses

    @cached_property
    def framework_rows(self) -> list[Framework]:
        return frameworks_of(self.modules)

    @cached_property
    def frameworks(self) -> frozenset[str]:
        """The names of the frameworks that it imports."""
        return frozenset(row.name for row in self.framework_rows)

    def gets(self, *what: Does) -> bool:
        """Whether a framework may do one of these in place of the program."""
        return any(one in row.does for row in self.framework_rows for one in what)

    @cached_property
    def uses_torch(self) -> bool:
        return bool(self.frameworks) or any(
            name.partition(".")[0] in {"torch", "torchvision", "transformers"}
            for module in self.modules
            for name, level, _ in module.imported
            if not level
        )

    @cached_property
    def inits(self) -> list[Call]:
        """The calls that form the process group; of a program only those that it runs, not all of its modules'."""
        found = self.named("torch.distributed.init_process_group")
        return [call for call in found if call.scope in self.running] if found and self.entry else found

    @cached_property
    def running(self) -> set[Scope]:
        """The functions that run when the program does. What has a decorator may be called by another package."""
        found: set[Scope] = set()
        waiting = [module.scope for module in self.modules]
        for module in self.modules:
            waiting += [
                scope for scope in module.scopes.values() if getattr(scope.node, "decorator_list", None)
            ]
        while waiting:
            scope = waiting.pop()
            if scope in found:
                continue
            found.add(scope)
            if scope.is_class:
                waiting += scope.functions.values()
            for call in scope.calls:
                waiting += self.graph.called.get(call, [])
                waiting += self.graph.functions(call.node.func, call.scope, methods=False)
        return found

    @cached_property
    def wraps(self) -> list[Call]:
        """Calls that make a model distributed."""
        return self.named(
            "DistributedDataParallel",
            "FullyShardedDataParallel",
            "fully_shard",
            "replicate",
            "DistributedModel",
        )

    @cached_property
    def collectives(self) -> list[Call]:
        """Collectives over all ranks: those that name a group are left out."""
        named = self.methods(*sorted(COLLECTIVES))
        return [call for call in named if is_collective(call.name) and not self._in_a_group(call)]

    def _in_a_group(self, call: Call) -> bool:
        group = call.argument("group")
        if group is None and call.last == "barrier":
            group = call.argument("group", 0)
        return group is not None and not (isinstance(group, ast.Constant) and group.value is None)

    @cached_property
    def spawns(self) -> bool:
        """Whether the program starts its own ranks."""
        return any(site.spawned for sites in self.graph.sites.values() for site in sites) or any(
            call.last in {"spawn", "start_processes"} and "multiprocessing" in call.name
            for call in self.calls
        )

    @cached_property
    def started(self) -> set[Scope]:
        """The functions that run in processes which the program itself starts."""
        found: set[Scope] = set()
        for sites in self.graph.sites.values():
            for site in sites:
                if site.spawned or site.call.last == "Process":
                    found |= self.graph.reached(site.function, 6)
        return found

    def on_all_ranks(self, call: Call) -> bool:
        """Whether a call runs in each rank, and not in the process that starts them."""
        return not self.started or call.scope in self.started

    @cached_property
    def many_ranks(self) -> bool:
        """Whether it runs in more than one process, started by a script or by itself."""
        return bool(self.started) or any(
            (start.processes or (start.nodes or 1) * (start.processes_per_node or 1)) > 1
            for start in self.starts
        )

    @cached_property
    def one_node(self) -> bool:
        """Whether it is known that it runs on one node only: its scripts say so, or it starts its own ranks there."""
        if self.starts:
            return all(start.nodes == 1 for start in self.starts)
        return False

    @cached_property
    def many_nodes(self) -> bool:
        """Whether a script starts it on more than one node."""
        return any((start.nodes or 0) > 1 for start in self.starts)
