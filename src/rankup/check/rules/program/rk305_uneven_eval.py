"""A sharded model is evaluated on shards of different lengths."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.program.module import torch_last
from rankup.check.facts.program.names import words
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sharding import strided_part
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity

_AGREES = words("all_reduce barrier all_gather")


def find(program: Program) -> Iterator[Match]:
    if all(torch_last(call) == "DistributedDataParallel" for call in program.wraps):
        return
    for loader in program.data.loaders:
        call = loader.call
        # Ranks with a collective of their own may agree on when to stop.
        alone = [loop for loop in loader.loops if not any(one.last in _AGREES for one in loop.calls)]
        step = strided_part(program, call.argument("dataset", 0), call.scope)
        if step and alone and not loader.sampled and call.argument("drop_last") is None:
            yield match(
                call.module,
                call.node,
                f"Ranks have different numbers of samples here (range with step {step}), and the model is sharded: "
                "each forward pass is a collective.",
            )


RULE = Rule(
    code="RK305",
    name="uneven-eval",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A model sharded by FSDP goes through data sets of different lengths on each rank.",
    why="Each forward pass gathers parameters on all ranks. The rank with one batch more waits for the others "
    "(prime-rl#2515).",
    fix="Let all ranks make the same number of steps: pad with batches of weight 0, or stop together.",
    find=find,
    fires=(
        """import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils.data import DataLoader, Subset

def main(net, dataset):
    dist.init_process_group("nccl")
    model = FSDP(net)
    part = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))
    with torch.no_grad():
        for x, y in DataLoader(part, 32):
            model(x)
""",
        """import os
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Subset

def evaluate(model, loader):
    return sum(model(x).sum() for x, y in loader)

def main(model, dataset):
    dist.init_process_group("nccl")
    fully_shard(model)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    loader = DataLoader(Subset(dataset, list(range(rank, len(dataset), world))), 32)
    for x, y in loader:
        model(x)
""",
    ),
    silent=(
        """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset

def main(net, dataset):
    dist.init_process_group("nccl")
    model = DDP(net)
    part = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))
    for x, y in DataLoader(part, 32):
        model.module(x)
""",
        """import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils.data import DataLoader, DistributedSampler

def main(net, dataset):
    dist.init_process_group("nccl")
    model = FSDP(net)
    for x, y in DataLoader(dataset, 32, sampler=DistributedSampler(dataset)):
        model(x)
""",
    ),
)
