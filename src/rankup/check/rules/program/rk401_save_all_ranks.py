"""All ranks write the same file."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from rankup.check.facts.program.module import Call, Scope, identifiers
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sharding import expressions
from rankup.check.facts.program.snapshots import to_file
from rankup.check.facts.program.value import Kind, depends_on
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import alone, indented_under, name_for
from rankup.findings.finding import Confidence, Severity

_RANKS = (Kind.RANK, Kind.LOCAL_RANK, Kind.NODE_RANK)
_OWN = ("buffer", "uuid", "pid", "tempfile", "temporary", "mkstemp", "mkdtemp", "gettempdir", "mktemp")
_WORDS = ("rank", "proc", "gpu", "device", "shard", "node", "worker")


def find(program: Program) -> Iterator[Match]:
    if not program.whole or program.frameworks or not program.inits:
        return
    if program.starts and not program.many_ranks:
        return
    for call in program.named("torch.save"):
        path = call.argument("f", 1)
        if path is None or not program.on_all_ranks(call) or program.guards.limited(call.node, call.scope):
            continue
        if (
            not to_file(program, call)
            or _by_condition(program, call)
            or not _one_path(program, path, call.scope)
        ):
            continue
        yield Match(
            call.module.document,
            call.span,
            f"All ranks write {ast.unparse(path)} at the same time.",
            _edit(call),
        )


def _by_condition(program: Program, call: Call, depth: int = 0) -> bool:
    """Whether a condition that may mean the rank or a single process stands around the save, or around its callers."""
    for holder, _ in call.module.ancestors(call.node):
        if isinstance(holder, (ast.If, ast.IfExp)):
            names = {name.lower() for name in identifiers(holder.test)}
            if any(
                word in name
                for name in names
                for word in (*_WORDS, "dist", "world", "ddp", "main", "master", "should_save", "do_save")
            ):
                return True
    for statement in call.scope.body:  # if world_size != 1: raise
        if isinstance(statement, ast.If) and statement.lineno < call.node.lineno and _leaves(statement):
            names = {name.lower() for name in identifiers(statement.test)}
            if any(word in name for name in names for word in (*_WORDS, "dist", "world")):
                return True
    sites = program.graph.sites.get(call.scope, [])
    return depth < 4 and any(_by_condition(program, site.call, depth + 1) for site in sites)


def _leaves(statement: ast.If) -> bool:
    return isinstance(statement.body[-1], (ast.Return, ast.Raise))


def _one_path(program: Program, path: ast.expr, scope: Scope) -> bool:
    """Whether a path is known to be the same on all ranks."""
    for part, inside in expressions(program, path, scope):
        if any(word in name.lower() for name in identifiers(part) for word in (*_WORDS, *_OWN)):
            return False
        if any("tmp" in name.lower() and name not in inside.definitions for name in identifiers(part)):
            return False
        for node in ast.walk(part):
            if isinstance(node, ast.expr) and depends_on(program.values.of(node, inside), *_RANKS):
                return False
            if isinstance(node, ast.Name) and not _known(program, node, inside):
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


def _edit(call: Call) -> tuple[Edit, ...]:
    module = call.module
    statement = module.statement(call.node)
    rank = name_for(module, "torch.distributed.get_rank")
    if rank is None or not isinstance(statement, ast.Expr) or not alone(module, statement):
        return ()
    return (indented_under(module, statement, f"if {rank}() == 0:"),)


RULE = Rule(
    code="RK401",
    name="save-all-ranks",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="All ranks save into the same file.",
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
