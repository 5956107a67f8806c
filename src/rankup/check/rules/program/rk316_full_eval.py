"""Every rank evaluates all of the data."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.program.frameworks import Does
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sharding import is_sharded
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import evaluating, match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if not program.whole or not program.averages or program.gets(Does.SAMPLER):
        return
    for loader in evaluating(program):
        call, data = loader.call, loader.call.argument("dataset", 0)
        places = [(call.node, call.scope), *((loop.node, loop.scope) for loop in loader.loops)]
        if loader.sampled or loader.hidden or data is None or not program.on_all_ranks(call):
            continue
        if any(program.guards.limited(node, scope) for node, scope in places):
            continue
        if any(loop.evaluates for loop in loader.loops) and not is_sharded(program, data, call.scope):
            yield match(
                call.module, call.node, "All ranks evaluate the whole data set: each does the same work."
            )


RULE = Rule(
    code="RK316",
    name="full-eval",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="Each rank evaluates the whole data set.",
    why="The result is right, but more ranks do not make the evaluation faster.",
    fix="Give each rank a part, and add up sums and counts with all_reduce.",
    find=find,
    fires=(
        """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

def main(net, test):
    dist.init_process_group("nccl")
    model = DDP(net)
    test_loader = DataLoader(test, 32)
    model.eval()
    with torch.no_grad():
        for x, y in test_loader:
            model(x)

main(None, [])
""",
        """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

@torch.no_grad()
def evaluate(model, loader):
    return sum((model(x).argmax(1) == y).sum() for x, y in loader)

@torch.no_grad()
def loss(model, loader):
    for x, y in loader:
        model(x)

def main(net, valid):
    dist.init_process_group("nccl")
    loss(DDP(net), DataLoader(valid, 32))

main(None, [])
""",
    ),
    silent=(
        """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

def main(net, test):
    dist.init_process_group("nccl")
    model = DDP(net)
    if dist.get_rank() == 0:
        with torch.no_grad():
            for x, y in DataLoader(test, 32):
                model.module(x)

main(None, [])
""",
        """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

def main(net, test):
    dist.init_process_group("nccl")
    model = DDP(net)
    with torch.no_grad():
        for x, y in DataLoader(test, 32, sampler=DistributedSampler(test, shuffle=False)):
            model(x)

main(None, [])
""",
    ),
)
