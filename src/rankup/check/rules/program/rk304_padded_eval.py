"""A padded sampler under an evaluation."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.data import Loader
from rankup.check.facts.program.module import identifiers
from rankup.check.facts.program.names import words
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import the_constant
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import evaluating, match, whole_lengths
from rankup.findings.finding import Confidence, Severity

_REDUCES = words("all_reduce all_gather all_gather_object gather reduce all_gather_into_tensor gather_object")


def find(program: Program) -> Iterator[Match]:
    if not program.distributed or not program.methods(*_REDUCES):
        return  # RK504 says that nothing is added up at all
    for loader in evaluating(program):
        for sampler in loader.samplers:
            dropped = the_constant(program.value(sampler, "drop_last", 5)) is True
            if sampler not in program.data.samplers or dropped or _by_index(loader):
                continue
            divided = [text for loop in loader.loops for _, text in whole_lengths(loader, loop)]
            yield match(
                sampler.module,
                sampler.node,
                "DistributedSampler repeats samples until each rank has as many: they count twice in this evaluation"
                + (f", which is divided by {divided[0]}." if divided else "."),
                severity=Severity.WARNING if divided else Severity.NOTE,
            )


def _by_index(loader: Loader) -> bool:
    """Whether results are stored at the index of their sample: a repeated one changes nothing."""
    for loop in loader.loops:
        given = identifiers(loop.node.target) if not isinstance(loop.node, ast.While) else set()
        assigns = (node for node in ast.walk(loop.node) if isinstance(node, ast.Assign))
        targets = (target for node in assigns for target in node.targets)
        if any(isinstance(one, ast.Subscript) and given & identifiers(one.slice) for one in targets):
            return True
    return False


RULE = Rule(
    code="RK304",
    name="padded-eval",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="An evaluation goes through a DistributedSampler.",
    why="The sampler pads with repeated samples, so that all ranks have as many: 10,000 samples on 96 ranks become "
    "10,080. The result is slightly wrong and depends on the number of ranks (pytorch#25162).",
    fix="Shard without padding, for example with Subset(dataset, range(rank, len(dataset), world_size)), and add up "
    "sums and counts.",
    find=find,
    fires=(
        """import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def main(dataset, model):
    dist.init_process_group("nccl")
    sampler = DistributedSampler(dataset, shuffle=False)
    test_loader = DataLoader(dataset, 32, sampler=sampler)
    right = torch.zeros(1)
    model.eval()
    with torch.no_grad():
        for x, y in test_loader:
            right += (model(x).argmax(1) == y).sum()
    dist.all_reduce(right)
    print(right / len(test_loader.dataset))
""",
        """import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

@torch.no_grad()
def evaluate(model, loader):
    sums = torch.zeros(2)
    for x, y in loader:
        sums += torch.stack([(model(x).argmax(1) == y).sum(), torch.tensor(len(y))])
    dist.all_reduce(sums)
    return sums[0] / sums[1]

def main(dataset, model):
    dist.init_process_group("nccl")
    loader = DataLoader(dataset, 32, sampler=DistributedSampler(dataset, shuffle=False))
    print(evaluate(model, loader))
""",
    ),
    silent=(
        """import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def main(dataset, model):
    dist.init_process_group("nccl")
    loader = DataLoader(dataset, 32, sampler=DistributedSampler(dataset))
    for x, y in loader:
        model(x).sum().backward()
    dist.all_reduce(torch.zeros(1))
""",
        """import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset

@torch.no_grad()
def evaluate(model, dataset):
    part = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))
    right = torch.zeros(1)
    for x, y in DataLoader(part, 32):
        right += (model(x).argmax(1) == y).sum()
    dist.all_reduce(right)
    return right / len(dataset)
""",
    ),
)
