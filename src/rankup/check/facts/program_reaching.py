"""Which assignments a name can still have the value of, at a place."""

from __future__ import annotations

import ast

from rankup.check.facts.program_module import Definition, Module, place

_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def reaching(found: list[Definition], use: ast.AST, module: Module) -> tuple[list[Definition], bool]:
    """The definitions in the same scope that can reach ``use``, and whether one of them always comes before it."""
    blocks: dict[
        tuple[ast.AST, str], ast.AST
    ] = {}  # each block around the use → its statement that holds the use
    node: ast.AST = use
    inside: list[ast.AST] = []
    for holder, field in module.ancestors(use):
        blocks[(holder, field)] = node
        if isinstance(holder, _LOOPS) and field == "body":
            inside.append(holder)
        node = holder
    around = {holder for holder, _ in blocks} | {use}
    here = place(use)
    candidates: list[Definition] = []
    last: Definition | None = None
    for definition in found:
        at = definition.at
        if definition.item and isinstance(at, ast.expr):  # a comprehension's variable lives in it alone
            clause = module.parents.get(at)
            comprehension = module.parents.get(clause[0]) if clause is not None else None
            if comprehension is not None and comprehension[0] in around:
                return [definition], True
            continue
        candidates.append(definition)
    if not candidates:
        return [], False
    for definition in candidates:
        if _always_before(definition, blocks, here, module, use) and (
            last is None or place(definition.at) > place(last.at)
        ):
            last = definition
    kept: list[Definition] = []
    for definition in candidates:
        where = place(definition.at)
        if definition is last:
            kept.append(definition)
        elif where < here and not _holds(definition.at, use, module):
            if last is None or where > place(last.at):
                kept.append(definition)
        elif any(_holds(loop, definition.at, module) for loop in inside) and not (
            last is not None and inside and _holds(inside[0], last.at, module)
        ):
            kept.append(definition)
    return kept, last is not None


def _always_before(
    definition: Definition,
    blocks: dict[tuple[ast.AST, str], ast.AST],
    here: tuple[int, int],
    module: Module,
    use: ast.AST,
) -> bool:
    at = module.statement(definition.at)
    if isinstance(definition.at, (ast.For, ast.AsyncFor)):
        if (at, "body") in blocks:
            return True
    elif isinstance(at, (ast.With, ast.AsyncWith)) and (at, "body") in blocks:
        return True
    block = module.parents.get(at)
    if block is None or block not in blocks:
        return False
    holder = blocks[block]
    return holder is not at and place(at) < here and place(at) < place(holder)


def _holds(outer: ast.AST, inner: ast.AST, module: Module) -> bool:
    node: ast.AST | None = inner
    while node is not None:
        if node is outer:
            return True
        parent = module.parents.get(node)
        node = parent[0] if parent is not None else None
    return False
