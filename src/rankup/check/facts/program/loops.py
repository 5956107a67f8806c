"""Which loops run more than once, and inside which others."""

from __future__ import annotations

import ast

from rankup.check.facts.program.data import Loop
from rankup.check.facts.program.module import Call, last_name
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import constants, the_constant


def repeats(loop: Loop, program: Program) -> bool:
    """Whether a loop runs more than once, as far as can be seen."""
    if isinstance(loop.node, ast.While):
        return True
    if isinstance(loop.node.iter, ast.Call) and last_name(loop.node.iter) in {"range", "trange"}:
        numbers = [the_constant(program.values.of(a, loop.scope)) for a in loop.node.iter.args]
        if all(isinstance(number, int) for number in numbers):
            return len(range(*numbers[:3])) > 1
        options = [program.values.of(a, loop.scope) for a in loop.node.iter.args]
        return not any(constants(value) == [1] and len(options) == 1 for value in options)
    return False


def around(loop: Loop, program: Program) -> list[Loop]:
    """The loops inside which ``loop`` runs: around it, or around the calls of its function."""
    by_node = {other.node: other for other in program.data.loops}
    found = [
        by_node[holder]
        for holder, field_name in loop.scope.module.ancestors(loop.node)
        if field_name == "body" and holder in by_node
    ]
    for site in program.graph.sites.get(loop.scope, ()):
        if site.call.scope is not loop.scope:
            found += around_call(site.call, program, 1)
    return found


def epochs_around(loop: Loop, program: Program) -> list[Loop]:
    """The loops around a loop over data that make it run more than once."""
    return [outer for outer in around(loop, program) if not outer.loaders and repeats(outer, program)]


def around_call(call: Call, program: Program, depth: int = 0) -> list[Loop]:
    """The loops inside which a call runs."""
    found = [loop for loop in program.data.loops if call in loop.calls]
    if depth < 4:
        for site in program.graph.sites.get(call.scope, ()):
            if site.call.scope is not call.scope:
                found += around_call(site.call, program, depth + 1)
    return found
