"""What a program writes into its snapshots, and what it reads back."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from rankup.check.facts.program.code import ProgramCode
from rankup.check.facts.program.module import Call, Module, Scope, last_name
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sounds import says
from rankup.check.facts.program.value import Kind, objects


@dataclass(eq=False, repr=False)
class Entry:
    """A key of a saved dictionary."""

    key: str
    value: ast.expr
    scope: Scope

    @property
    def module(self) -> Module:
        return self.scope.module


@dataclass(eq=False, repr=False)
class Snapshot:
    """A ``torch.save`` of a dictionary that stands in the program."""

    call: Call
    entries: list[Entry]

    def has(self, *words: str) -> bool:
        return any(
            word in text for e in self.entries for text in (e.key.lower(), _text(e.value)) for word in words
        )


def snapshots(program: ProgramCode) -> list[Snapshot]:
    found = []
    for call in program.named("torch.save"):
        entries = _entries(program, call.argument("obj", 0), call.scope)
        if entries:
            found.append(Snapshot(call, entries))
    for call, targets in program.graph.called.items():  # save_checkpoint({...}) that saves its parameter
        for target in targets:
            if any(c.name == "torch.save" for c in target.calls):
                for given in call.node.args:
                    entries = (
                        _entries(program, given, call.scope)
                        if isinstance(given, (ast.Dict, ast.Name))
                        else []
                    )
                    if entries and not any(entries[0].value is s.entries[0].value for s in found):
                        found.append(Snapshot(call, entries))
    return found


def to_file(program: ProgramCode, call: Call) -> bool:
    """Whether a ``torch.save`` writes a file, and not into memory."""
    made = objects(program.value(call, "f", 1))
    return not any(one.last in {"BytesIO", "open", "SpooledTemporaryFile", "TemporaryFile"} for one in made)


def _entries(program: ProgramCode, node: ast.expr | None, scope: Scope, depth: int = 0) -> list[Entry]:
    if isinstance(node, ast.Dict):
        return [
            Entry(str(key.value), value, scope)
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant)
        ]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        return [Entry(k.arg, k.value, scope) for k in node.keywords if k.arg]
    if isinstance(node, ast.Name) and depth < 2:
        at: Scope | None = scope
        while at is not None:
            for definition in at.definitions.get(node.id, ()):
                found = _entries(program, definition.value, at, depth + 1)
                if found:
                    return found
            at = at.parent
    return []


def read_keys(program: ProgramCode) -> dict[str, list[tuple[ast.Subscript, Scope]]]:
    """Key → the places that read it: ``checkpoint["epoch"]``."""
    found: dict[str, list[tuple[ast.Subscript, Scope]]] = {}
    for module in program.modules:
        for node in module.of(ast.Subscript):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if isinstance(key, str) and isinstance(node.ctx, ast.Load):
                found.setdefault(key, []).append((node, module.scope_of(node)))
    return found


def is_loop_counter(program: ProgramCode, node: ast.expr, scope: Scope) -> bool:
    """Whether a value is the variable of the loop over epochs, unchanged."""
    if not isinstance(node, ast.Name):
        return False
    value = program.values.of(node, scope)
    return bool(value) and {atom.kind for atom in value} == {Kind.ITEM}


def assigned_from(
    program: Program, node: ast.Subscript, scope: Scope, *, changed: bool
) -> list[ast.expr | None]:
    """What ``checkpoint["epoch"]`` is assigned to, also by what calls the function that returns it.

    None is a place where something else happens to it; without ``changed`` also that something is added to it.
    """
    holder: ast.AST = scope.module.statement(node) if changed else scope.module.parents[node][0]
    while isinstance(holder, ast.Call) and last_name(holder) == "int":
        holder = scope.module.parents[holder][0]
    places = [holder]
    if isinstance(holder, ast.Return):  # start = load(model)
        sites = program.graph.sites.get(scope, ())
        places = [site.call.module.parents[site.call.node][0] for site in sites]
    return [
        one.targets[0] if isinstance(one, ast.Assign) and len(one.targets) == 1 else None for one in places
    ]


def starts_a_range(program: Program, target: ast.expr) -> bool:
    """``for epoch in range(start, …)``"""
    for loop in program.data.loops:
        over = loop.node.iter if isinstance(loop.node, ast.For) else None
        if isinstance(over, ast.Call) and len(over.args) > 1 and last_name(over.args[0]) == last_name(target):
            return True
    return False


def starts_a_loop(program: Program, target: ast.expr) -> bool:
    """Whether a loop goes over anything that has the name in it."""
    last = last_name(target)
    return any(
        isinstance(loop.node, ast.For) and says(loop.node.iter, (last.lower(),))
        for loop in program.data.loops
    )


def _text(node: ast.expr) -> str:
    return ast.unparse(node).lower() if isinstance(node, (ast.Call, ast.Name, ast.Attribute)) else ""
