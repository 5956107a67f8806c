"""Where statements stand to each other: loops, branches, blocks, and what comes between."""

from __future__ import annotations

import ast

from rankup.check.facts.program.module import Call, Module, place

LOOPS = (ast.For, ast.AsyncFor, ast.While)
BRANCHES = (ast.If, ast.IfExp)
WITHS = (ast.With, ast.AsyncWith)


def holders(
    module: Module, node: ast.AST, *kinds: type[ast.AST], parts: tuple[str, ...] = ()
) -> list[ast.AST]:
    """The nodes of these kinds around a node (in one of their ``parts``), from the inside to the function's end."""
    return [
        holder
        for holder, part in module.ancestors(node)
        if isinstance(holder, kinds) and (not parts or part in parts)
    ]


def loops_around(call: Call) -> list[ast.AST]:
    return holders(call.module, call.node, *LOOPS, parts=("body",))


def tests_around(module: Module, node: ast.AST) -> list[ast.expr]:
    """The conditions under which a node runs, or does not, in its function."""
    return [
        holder.test
        for holder in holders(module, node, *BRANCHES, parts=("body", "orelse"))
        if isinstance(holder, BRANCHES)
    ]


def pass_of(call: Call) -> tuple[ast.AST | None, list[ast.expr]]:
    """The loop whose passes a call runs in, and the conditions between the two; no loop if a ``try`` is between."""
    conditions: list[ast.expr] = []
    for holder, part in call.module.ancestors(call.node):
        if isinstance(holder, LOOPS) and part == "body":
            return holder, conditions
        if isinstance(holder, BRANCHES) and part in {"body", "orelse"}:
            conditions.append(holder.test)
        elif isinstance(holder, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Try, ast.Match)):
            break
    return None, conditions


def same_turn(call: Call, later: Call) -> bool:
    """Whether ``later`` runs after ``call`` in the same turn of each loop around it, and not in another branch."""
    loops = loops_around(later)
    return (
        comes_after(later, call)
        and not in_other_branch(call, later)
        and (not loops or loops[0] in holders(call.module, call.node, *LOOPS))
    )


def in_other_branch(one: Call, other: Call) -> bool:
    """Whether two calls are in different branches of one condition."""
    parts: dict[ast.AST, str] = {
        holder: part
        for holder, part in one.module.ancestors(one.node)
        if isinstance(holder, (*BRANCHES, ast.Try, ast.Match))
    }
    return any(parts.get(holder, part) != part for holder, part in other.module.ancestors(other.node))


def same_block(one: Call, other: Call) -> bool:
    module = one.module
    return module.parents.get(module.statement(one.node)) == module.parents.get(module.statement(other.node))


def comes_after(later: Call, earlier: Call) -> bool:
    return place(later.node) > place(earlier.node)


def between(first: Call, last: Call) -> list[Call]:
    """The calls of a function that come after one call and before another."""
    return [call for call in last.scope.calls if comes_after(call, first) and comes_after(last, call)]
