"""A file that rank 0 writes is read by all ranks, and nothing makes them wait."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from rankup.check.facts.program.module import Call, place
from rankup.check.facts.program.names import is_collective
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import Kind
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_WAITS = frozenset(
    ["barrier", "monitored_barrier", "wait_for_everyone", "synchronize", "wait", "exists", "is_file", "sleep"]
)


def find(program: Program) -> Iterator[Match]:
    if not program.inits or program.frameworks:
        return
    for load in program.named("torch.load"):
        path = load.argument("f", 0)
        if path is None or program.guards.everywhere(load.node, load.scope):
            continue
        for save in program.named("torch.save"):
            written = save.argument("f", 1)
            if (
                written is not None
                and save.scope is load.scope
                and place(save.node) < place(load.node)
                and ast.unparse(written) == ast.unparse(path)
                and _by_rank_0(program, save)
                and not _waits_between(program, save, load)
            ):
                yield Match(
                    load.module.document,
                    load.span,
                    f"Rank 0 writes {ast.unparse(path)} at line {save.node.lineno}, and the other ranks read it "
                    "without waiting for it.",
                )
                break


def _by_rank_0(program: Program, call: Call) -> bool:
    guards = program.guards.of(call.node, call.scope)
    return any(
        g.test.sure and g.only_first and g.test.of is not Kind.NODE_RANK and not g.early for g in guards
    )


def _waits_between(program: Program, save: Call, load: Call) -> bool:
    """Whether any call between the two is a collective, or may hold one."""
    for call in load.scope.calls:
        if not place(save.node) < place(call.node) < place(load.node):
            continue
        reached = [
            inner for target in program.graph.called.get(call, ()) for inner in program.graph.reached(target)
        ]
        for one in [call, *(c for scope in reached for c in scope.calls)]:
            if one.last in _WAITS or is_collective(one.name) or one in program.wraps:
                return True
            local = one.name or program.graph.called.get(one) or hasattr(builtins, one.last)
            if isinstance(one.node.func, ast.Name) and not local:
                return True  # nobody knows what it does: a model, perhaps
    return False


_HEAD = """import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.Linear(2, 2)
if dist.get_rank() == 0:
    torch.save(model.state_dict(), "first.pt")
"""

RULE = Rule(
    code="RK407",
    name="read-unfinished",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="All ranks read a file that rank 0 has just written, and nothing makes them wait.",
    why="The other ranks arrive first: the file is missing, half written, or that of the run before. In the last case "
    "the ranks go on with different weights, without a message.",
    fix="Call dist.barrier() on all ranks between the two.",
    find=find,
    fires=(
        _HEAD + 'model.load_state_dict(torch.load("first.pt", map_location="cpu"))\n',
        """import os
import torch
import torch.distributed as dist

def main(path):
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    model = torch.nn.Linear(2, 2)
    if rank == 0:
        torch.save(model.state_dict(), path)
    print("saved")
    state = torch.load(path, map_location="cpu")
    model.load_state_dict(state)

main("first.pt")
""",
    ),
    silent=(
        _HEAD + 'dist.barrier()\nmodel.load_state_dict(torch.load("first.pt", map_location="cpu"))\n',
        _HEAD + 'model.load_state_dict(torch.load("pretrained.pt"))\n',
    ),
)
