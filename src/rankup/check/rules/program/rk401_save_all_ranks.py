"""Several ranks write the same file: all of them, or local rank 0 of every node."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from rankup.check.facts.program.flow import tests_around
from rankup.check.facts.program.module import Call, Scope, identifiers
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sharding import expressions
from rankup.check.facts.program.sounds import LEAVES_EARLY, MAY_SAVE, NODE_FILE, OWN_FILE, PROCESS, sounds
from rankup.check.facts.program.value import RANKS, Kind
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import alone, indented_under, name_for
from rankup.check.rules.queries import goes_in, match, saves
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if not program.distributed or (program.starts and not program.many_ranks):
        return
    for call, path in saves(program):
        if not program.guards.limited(call.node, call.scope):
            if program.whole and program.on_all_ranks(call) and _by_all(program, call, path):
                sites = program.graph.sites.get(call.scope, [])
                bare = [site.call for site in sites if not _by_condition(program, site.call)]
                by = f" (by line {bare[0].node.lineno})" if 0 < len(bare) < len(sites) else ""
                message = f"All ranks write {ast.unparse(path)} at the same time{by}."
                yield match(call.module, call.node, message, *_edit(call))
        elif not program.one_node and not program.spawns and not program.started:
            yield from _by_each_node(program, call, path)


def _by_all(program: Program, call: Call, path: ast.expr) -> bool:
    return not _by_condition(program, call) and _one_path(program, path, call.scope)


def _by_condition(program: Program, call: Call, depth: int = 0) -> bool:
    """Whether a condition that may mean the rank or a single process stands around the save, or around each call."""
    if any(sounds(test, MAY_SAVE) for test in tests_around(call.module, call.node)):
        return True
    for statement in call.scope.body:  # if world_size != 1: raise
        if isinstance(statement, ast.If) and statement.lineno < call.node.lineno:
            ends = isinstance(statement.body[-1], (ast.Return, ast.Raise))
            if ends and sounds(statement.test, LEAVES_EARLY):
                return True
    sites = program.graph.sites.get(call.scope, [])
    return bool(sites) and depth < 4 and all(_by_condition(program, site.call, depth + 1) for site in sites)


def _one_path(program: Program, path: ast.expr, scope: Scope) -> bool:
    """Whether a path is known to be the same on all ranks."""
    if goes_in(program, path, scope, RANKS, (*PROCESS, *OWN_FILE)):
        return False
    for part, inside in expressions(program, path, scope):
        if any("tmp" in name.lower() and name not in inside.definitions for name in identifiers(part)):
            return False
        if any(isinstance(node, ast.Name) and not _known(program, node, inside) for node in ast.walk(part)):
            return False
    return True


def _known(program: Program, node: ast.Name, scope: Scope) -> bool:
    at: Scope | None = scope
    while at is not None:
        if node.id in at.definitions or node.id in at.functions:
            return True
        if node.id in at.all_parameters:
            return node.id == "self" or bool(program.graph.sites.get(at))
        at = at.parent
    return node.id in scope.module.imports or hasattr(builtins, node.id)


def _by_each_node(program: Program, call: Call, path: ast.expr) -> Iterator[Match]:
    """A save that asks for the local rank, of which every node has a first one."""
    guards = program.guards.everywhere(call.node, call.scope)
    local = [guard for guard in guards if guard.test.first and guard.test.sure]
    if not local or any(guard.test.of is not Kind.LOCAL_RANK for guard in guards):
        return
    texts = [node for part, _ in expressions(program, path, call.scope) for node in ast.walk(part)]
    own = ("/tmp", "/local", "/dev/shm")
    if any(isinstance(node, ast.Constant) and str(node.value).startswith(own) for node in texts):
        return
    if not goes_in(program, path, call.scope, (Kind.RANK, Kind.NODE_RANK), NODE_FILE):
        yield match(
            call.module,
            call.node,
            f"{ast.unparse(path)} is written by local rank 0 of every node (condition at "
            f"{call.module.line(local[0].line)}).",
            severity=Severity.WARNING if program.many_nodes else Severity.NOTE,
            confidence=Confidence.SURE if program.many_nodes else Confidence.LIKELY,
            why="On several nodes several processes write the same file of a shared file system at the same time.",
            fix="Ask for the global rank: if dist.get_rank() == 0.",
        )


def _edit(call: Call) -> tuple[Edit, ...]:
    module, statement = call.module, call.module.statement(call.node)
    rank = name_for(module, "torch.distributed.get_rank")
    if rank is None or not isinstance(statement, ast.Expr) or not alone(module, statement):
        return ()
    return (indented_under(module, statement, f"if {rank}() == 0:"),)


RULE = Rule(
    code="RK401",
    name="save-all-ranks",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="Several ranks save into the same file: all of them, or the first one of every node.",
    why="The writes mix, and the file can be damaged: 'storage has wrong size' on loading (apex#629).",
    fix="Save on rank 0 only: if dist.get_rank() == 0. Other ranks may need a barrier before they read it.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """import os
import torch
import torch.distributed as dist

def main():
    dist.init_process_group("gloo")
    model = torch.nn.Linear(2, 2)
    tmp = "model.pt.tmp"
    torch.save(model.state_dict(), tmp)
    os.replace(tmp, "model.pt")

main()
""",
        """import torch
import torch.distributed as dist

def main():
    dist.init_process_group("gloo")
    model = torch.nn.Linear(2, 2)
    torch.save(model.state_dict(), "model.pt")

main()
""",
    ),
    silent=(
        """import torch
import torch.distributed as dist

dist.init_process_group("nccl")
save = lambda model, path: torch.save(model, path)
if dist.get_rank() == 0:
    save(torch.nn.Linear(2, 2), "model.pt")
""",
        """import torch
import torch.distributed as dist

def main():
    dist.init_process_group("gloo")
    model = torch.nn.Linear(2, 2)
    torch.save(model.state_dict(), f"model-{dist.get_rank()}.pt")

main()
""",
    ),
)
