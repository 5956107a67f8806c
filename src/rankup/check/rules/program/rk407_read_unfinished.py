"""A file that rank 0 writes is read by all ranks, and nothing makes them wait."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from rankup.check.facts.program.flow import between, comes_after
from rankup.check.facts.program.module import Call, same
from rankup.check.facts.program.names import is_collective, words
from rankup.check.facts.program.program import Program
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import loads, match, saves
from rankup.findings.finding import Confidence, Severity

_WAITS = words("barrier monitored_barrier wait_for_everyone synchronize wait exists is_file sleep")


def find(program: Program) -> Iterator[Match]:
    for load in loads(program) if program.distributed else ():
        path = load.argument("f", 0)
        if path is None or program.guards.limited(load.node, load.scope):
            continue
        written = [
            save
            for save, where in saves(program)
            if save.scope is load.scope and comes_after(load, save) and same(where, path)
            if any(one.sure_first and not one.early for one in program.guards.of(save.node, save.scope))
            if not any(_waits(program, one) for call in between(save, load) for one in program.within(call))
        ]
        for save in written[:1]:
            yield match(
                load.module,
                load.node,
                f"Rank 0 writes {ast.unparse(path)} at {save.module.line(save.node.lineno)}, and the "
                "other ranks read it without waiting for it.",
            )


def _waits(program: Program, call: Call) -> bool:
    """Whether a call is a collective, or may hold one: nobody knows what it does. It is a model, perhaps."""
    if call.last in _WAITS or is_collective(call.name) or call in program.wraps:
        return True
    known = call.name or program.graph.called.get(call) or hasattr(builtins, call.last)
    return isinstance(call.node.func, ast.Name) and not known


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
