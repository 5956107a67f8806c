"""A model that goes to its device after it was wrapped."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.module import Call, last_name, place
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sharding import parts
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity

_MOVES = ("to", "cuda", "to_empty")


def find(program: Program) -> Iterator[Match]:
    wraps = program.named("DistributedDataParallel")
    for call in program.methods("to", "cuda") if wraps else ():
        if call.base is None or call.name or (call.last == "to" and not call.given):
            continue
        wrapped = [one for one in program.made(call.base, call.scope) if one in wraps]
        if wrapped and not any(_is_moved(program, one) for one in wrapped) and _is_after(call, wrapped):
            yield match(
                call.module, call.node, "The model is moved after DistributedDataParallel has wrapped it."
            )


def _is_moved(program: Program, wrap: Call) -> bool:
    """Whether the model that is wrapped was moved before."""
    model, scope = wrap.argument("module", 0), wrap.scope
    name = ast.unparse(model) if model is not None else ""
    by_statement = (one for one in scope.calls if one.base is not None and ast.unparse(one.base) == name)
    earlier = (
        node
        for node, at in parts(program, model, scope)
        if at is not scope or place(node) < place(wrap.node) or node in ast.walk(wrap.node)
    )
    return any(one.last in _MOVES and one.module.before(one.node, wrap.node) for one in by_statement) or any(
        isinstance(node, ast.Call) and last_name(node) in _MOVES for node in earlier
    )


def _is_after(call: Call, wrapped: list[Call]) -> bool:
    return any(one.scope is call.scope and _end(one.node) < _end(call.node) for one in wrapped)


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or 0, node.end_col_offset or 0


RULE = Rule(
    code="RK221",
    name="wrapped-then-moved",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="A model is wrapped by DistributedDataParallel first, and moved to its device then.",
    why="The wrapper sends the parameters of rank 0 to the others and plans its buckets by the device that they have "
    "then: NCCL refuses those of the CPU, and gloo works on the CPU alone.",
    fix="Write model.to(device), then DistributedDataParallel(model).",
    find=find,
    fires=(
        """import torch

def main(device):
    net = torch.nn.Linear(2, 2)
    net = torch.nn.parallel.DistributedDataParallel(net)
    net = net.to(device)
""",
        """from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

def main(world_size):
    model = nn.Linear(2, 2)
    if world_size > 1:
        model = DDP(model)
    model.cuda()
""",
    ),
    silent=(
        """import torch

def main(device):
    net = torch.nn.Linear(2, 2).to(device)
    net = torch.nn.parallel.DistributedDataParallel(net)
    return net
""",
        """import torch

def main(device, x):
    net = torch.nn.Linear(2, 2)
    net.to(device)
    net = torch.nn.parallel.DistributedDataParallel(net)
    net.to(memory_format=torch.channels_last)
    return net(x.to(device))
""",
    ),
)
