"""A wrapped model is called on one rank only. Without buffers DDP's forward pass sends nothing: then it is a note."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.module import Call, torch_last
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import Kind, kinds, objects, the_constant
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_BUFFERED = ("BatchNorm", "SyncBatchNorm", "register_buffer", "InstanceNorm", "LazyBatchNorm")


def find(program: Program) -> Iterator[Match]:
    wraps = [call for call in program.wraps if torch_last(call) != "fully_shard"]
    # fully_shard changes the model itself.
    sharded = [
        one
        for call in program.wraps
        if call not in wraps
        for one in objects(program.value(call, "module", 0))
    ]
    wraps += [one for one in sharded if one not in wraps]
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
        by = "fully_shard" if any(one in sharded for one in made) else torch_last(made[0])
        fsdp = by in {"FullyShardedDataParallel", "fully_shard"}
        name = ast.unparse(call.node.func)
        yield Match(
            call.module.document,
            call.span,
            f"{name} is wrapped in {by} and called on one rank only "
            f"(condition at line {getattr(guards[0].at, 'lineno', 0)}).",
            severity=Severity.ERROR
            if fsdp
            else Severity.WARNING
            if _has_buffers(program, made[0])
            else Severity.NOTE,
        )


def _has_buffers(program: Program, wrap: Call) -> bool:
    """Whether the model has buffers, such as those of BatchNorm; without them DDP's forward pass sends nothing."""
    if the_constant(program.value(wrap, "broadcast_buffers")) is False:
        return False
    for made in objects(program.value(wrap, "module", 0)):
        if made.name.startswith(("torchvision.models.", "timm.")):
            return True
        for function in program.graph.called.get(made, ()):
            if any(call.last.startswith(_BUFFERED) for call in function.calls):
                return True
        if any(
            isinstance(a, ast.Call) and ast.unparse(a.func).rpartition(".")[2].startswith(_BUFFERED)
            for a in made.node.args
        ):
            return True
    return False


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
import torchvision
from torch.nn.parallel import DistributedDataParallel as DDP

def main(loader):
    rank = dist.get_rank()
    model = DDP(torchvision.models.resnet18().cuda())
    if rank == 0:
        with torch.no_grad():
            for x, y in loader:
                print(model(x))
""",
        """import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

def main(x):
    model = torch.nn.Linear(4, 1)
    fully_shard(model)
    if dist.get_rank() == 0:
        print(model(x))
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
