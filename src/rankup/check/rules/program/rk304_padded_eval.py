"""A padded sampler under an evaluation."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.data import Loader
from rankup.check.facts.program.module import identifiers
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import the_constant
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_REDUCES = (
    "all_reduce",
    "all_gather",
    "all_gather_object",
    "gather",
    "reduce",
    "all_gather_into_tensor",
    "gather_object",
)


def find(program: Program) -> Iterator[Match]:
    if program.frameworks or not program.inits:
        return
    if not program.methods(*_REDUCES):
        return  # RK504 says that nothing is added up at all
    for loader in program.data.loaders:
        for sampler in loader.samplers:
            if sampler not in program.data.samplers or not loader.evaluates or loader.trains:
                continue
            if the_constant(program.value(sampler, "drop_last", 5)) is True:
                continue
            if _by_index(loader):
                continue
            whole = _by_whole_length(program, loader)
            yield Match(
                sampler.module.document,
                sampler.span,
                "DistributedSampler repeats samples until each rank has as many: they count twice in this evaluation"
                + (f", which is divided by {whole}." if whole else "."),
                severity=Severity.WARNING if whole else Severity.NOTE,
            )


def _by_index(loader: Loader) -> bool:
    """Whether results are stored at the index of their sample: a repeated one changes nothing."""
    for loop in loader.loops:
        if not isinstance(loop.node, (ast.For, ast.AsyncFor)):
            continue
        given = identifiers(loop.node.target)
        for node in ast.walk(loop.node):
            if isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Subscript) and given & identifiers(target.slice)
                for target in node.targets
            ):
                return True
    return False


def _by_whole_length(program: Program, loader: Loader) -> str:
    """Whether a result is divided by the length of the data set, which has no repeated samples."""
    for loop in loader.loops:
        for node in loop.scope.module.of(ast.BinOp):
            if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
                continue
            if loop.scope.module.scope_of(node) is loop.scope:
                text = ast.unparse(node.right)
                if text.startswith("len(") and text.endswith(".dataset)"):
                    return text
    return ""


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
