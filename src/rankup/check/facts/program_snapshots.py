"""What a program writes into its snapshots, and what it reads back."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rankup.check.facts.program_module import Call, Module, Scope
from rankup.check.facts.program_value import Kind, objects

if TYPE_CHECKING:
    from rankup.check.facts.program import Program


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


def snapshots(program: Program) -> list[Snapshot]:
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


def to_file(program: Program, call: Call) -> bool:
    """Whether a ``torch.save`` writes a file, and not into memory."""
    made = objects(program.value(call, "f", 1))
    return not any(one.last in {"BytesIO", "open", "SpooledTemporaryFile", "TemporaryFile"} for one in made)


def _entries(program: Program, node: ast.expr | None, scope: Scope, depth: int = 0) -> list[Entry]:
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


def read_keys(program: Program) -> dict[str, list[tuple[ast.Subscript, Scope]]]:
    """Key → the places that read it: ``checkpoint["epoch"]``."""
    found: dict[str, list[tuple[ast.Subscript, Scope]]] = {}
    for module in program.modules:
        for node in module.of(ast.Subscript):
            if (
                isinstance(node, ast.Subscript)
                and isinstance(node.slice, ast.Constant)
                and isinstance(node.ctx, ast.Load)
            ) and isinstance(node.slice.value, str):
                found.setdefault(node.slice.value, []).append((node, module.scope_of(node)))
    return found


def is_loop_counter(program: Program, node: ast.expr, scope: Scope) -> bool:
    """Whether a value is the variable of the loop over epochs, unchanged."""
    if not isinstance(node, ast.Name):
        return False
    value = program.values.of(node, scope)
    return bool(value) and {atom.kind for atom in value} == {Kind.ITEM}


def _text(node: ast.expr) -> str:
    return ast.unparse(node).lower() if isinstance(node, (ast.Call, ast.Name, ast.Attribute)) else ""
