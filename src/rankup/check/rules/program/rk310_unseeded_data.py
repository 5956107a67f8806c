"""A random data set that is another one on each rank."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.program.module import Call
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sharding import may_seed, random_calls, seeded_by_rank_alone
from rankup.check.facts.program.value import objects
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if not program.whole or program.frameworks or not program.inits:
        return
    by_rank = seeded_by_rank_alone(program)
    if may_seed(program) and not by_rank:
        return
    for sampler in program.data.samplers:
        given = sampler.argument("dataset", 0)
        if given is None or not program.on_all_ranks(sampler):
            continue
        drawn = [call for call in random_calls(program, given, sampler.scope) if _in_making(call)]
        if not drawn:
            continue
        learns = _has_a_rule(program, sampler)
        yield Match(
            drawn[0].module.document,
            drawn[0].span,
            "Each rank draws a data set of its own, with a seed of its own, and a DistributedSampler divides it."
            if by_rank
            else "Each rank draws a data set of its own, without a seed, and a DistributedSampler divides it.",
            severity=Severity.WARNING if learns else Severity.NOTE,
        )


def _in_making(call: Call) -> bool:
    return call.scope.name not in {"__getitem__", "__iter__", "collate_fn", "forward"}


def _has_a_rule(program: Program, sampler: Call) -> bool:
    """Whether the labels follow from the inputs: then there is something to learn, and each rank has another truth."""
    for made in objects(program.value(sampler, "dataset", 0)):
        if made.last == "TensorDataset" and len(made.node.args) == 2:
            labels = objects(program.values.of(made.node.args[1], made.scope))
            return not labels or not any(one.last.startswith("rand") for one in labels)
    return False


RULE = Rule(
    code="RK310",
    name="unseeded-data",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="A data set is made of random numbers on each rank, and no seed is set.",
    why="A DistributedSampler divides one data set among the ranks. Here each rank has another one, so the parts do "
    "not add up, and a rule with random weights differs from rank to rank.",
    fix="Make it with generator=torch.Generator().manual_seed(0), or call torch.manual_seed(0) on all ranks before.",
    find=find,
    fires=(
        """import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1 + dist.get_rank())
    dataset = TensorDataset(torch.randn(1000, 8), torch.randn(1000, 1))
    loader = DataLoader(dataset, 32, sampler=DistributedSampler(dataset))

main()
""",
        """import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def main():
    dist.init_process_group("gloo")
    x = torch.randn(1000, 8)
    y = x @ torch.randn(8, 1)
    dataset = TensorDataset(x, y)
    loader = DataLoader(dataset, 32, sampler=DistributedSampler(dataset))

main()
""",
    ),
    silent=(
        """import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler, TensorDataset

def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    dataset = TensorDataset(torch.randn(1000, 8))
    sampler = DistributedSampler(dataset)

main()
""",
        """import torch
from torch.utils.data import DataLoader, TensorDataset

dataset = TensorDataset(torch.randn(1000, 8))
print(len(DataLoader(dataset, 32)))
""",
    ),
)
