"""A wrapped model is called on one rank only."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program import Program
from rankup.check.facts.program_module import torch_last
from rankup.check.facts.program_value import Kind, kinds, objects
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    wraps = [call for call in program.wraps if torch_last(call) != "fully_shard"]
    if not wraps or program.frameworks - {"fairscale"}:
        return
    for call in program.calls:
        if (
            call.name
            or not isinstance(call.node.func, (ast.Name, ast.Attribute))
            or program.graph.called.get(call)
        ):
            continue
        guards = [
            guard
            for guard in program.guards.everywhere(call.node, call.scope)
            if guard.test.sure and guard.only_first and guard.test.of is not Kind.NODE_RANK
        ]
        if not guards:
            continue
        value = program.values.of(call.node.func, call.scope)
        made = objects(value)
        if kinds(value) != {Kind.OBJECT} or not all(one in wraps for one in made):
            continue
        fsdp = any(torch_last(one) == "FullyShardedDataParallel" for one in made)
        name = ast.unparse(call.node.func)
        yield Match(
            call.module.document,
            call.span,
            f"{name} is wrapped in {torch_last(made[0])} and called on one rank only "
            f"(condition at line {getattr(guards[0].at, 'lineno', 0)}).",
            severity=Severity.ERROR if fsdp else Severity.WARNING,
        )


RULE = Rule(
    code="RK208",
    name="rank0-ddp-forward",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A model wrapped in DDP or FSDP is called on one rank only.",
    why="The forward pass of DDP broadcasts buffers, that of FSDP gathers parameters: both are collectives. One rank "
    "waits for the others (pytorch#54059).",
    fix="Call model.module(...) for an evaluation on one rank of DDP; with FSDP evaluate on all ranks.",
    find=find,
    fires=(
        """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(net, loader):
    rank = dist.get_rank()
    model = DDP(net)
    if rank == 0:
        with torch.no_grad():
            for x, y in loader:
                print(model(x))
""",
        """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def evaluate(model, loader):
    model.eval()
    return sum(model(x).sum().item() for x, _ in loader)

def main(net, loader):
    ddp = DistributedDataParallel(net)
    if dist.get_rank() == 0:
        print(evaluate(ddp, loader))
""",
    ),
    silent=(
        """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(net, loader):
    model = DDP(net)
    if dist.get_rank() == 0:
        for x, y in loader:
            print(model.module(x))
""",
        """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(net, loader):
    model = DDP(net)
    for x, y in loader:
        out = model(x)
        if dist.get_rank() == 0:
            print(out)
""",
    ),
)
