"""Every rank goes through the whole data set."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.program.data import Loader
from rankup.check.facts.program.flow import tests_around
from rankup.check.facts.program.frameworks import Does
from rankup.check.facts.program.module import same
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sharding import is_iterable, is_sharded, is_synthetic, seeds_by_rank
from rankup.check.facts.program.sounds import MANY, sounds
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import name_for, replaced
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if not program.whole or not program.averages or program.gets(Does.SAMPLER, Does.SPLIT):
        return
    if program.methods("parallelize_module", "init_device_mesh", "DeviceMesh"):
        return
    by_seed = seeds_by_rank(program)  # the ranks draw different batches on purpose
    for loader in program.data.loaders:
        call, given = loader.call, loader.call.argument("dataset", 0)
        if loader.sampled or loader.hidden or given is None or not any(loop.trains for loop in loader.loops):
            continue
        idle = _has_idle_sampler(program, given)
        random = by_seed or is_synthetic(program, given, call.scope)
        if (
            (random and not idle)
            or not program.on_all_ranks(call)
            or program.guards.limited(call.node, call.scope)
            or _alternative(program, loader)
            or is_iterable(program, given, call.scope)
            or is_sharded(program, given, call.scope)
        ):
            continue
        yield match(
            call.module,
            call.node,
            "This training loader has no DistributedSampler: every rank trains on all of the data in each epoch.",
            *_edit(loader, given),
        )


def _has_idle_sampler(program: Program, given: ast.expr) -> bool:
    """Whether a DistributedSampler was made for the data, and no loader got it."""
    used = {sampler for loader in program.data.loaders for sampler in loader.samplers}
    return any(
        sampler not in used and same(given, sampler.argument("dataset", 0))
        for sampler in program.data.samplers
    )


def _alternative(program: Program, loader: Loader) -> bool:
    """Whether another loader with a sampler may take its place: the branch of a single process."""
    if any(sounds(test, MANY) for test in tests_around(loader.call.module, loader.call.node)):
        return True
    others = [other for other in program.data.loaders if other is not loader and other.sampled]
    return any(set(other.loops) & set(loader.loops) for other in others)


def _edit(loader: Loader, given: ast.expr) -> tuple[Edit, ...]:
    module, call = loader.call.module, loader.call
    sampler = name_for(module, "torch.utils.data.DistributedSampler") or name_for(
        module, "torch.utils.data.distributed.DistributedSampler"
    )
    if sampler is None or not isinstance(given, (ast.Name, ast.Attribute)) or call.spread:
        return ()
    text = f"sampler={sampler}({ast.unparse(given)})"
    for keyword in call.node.keywords:
        if keyword.arg == "shuffle":
            return (replaced(module, keyword, text),)
    last = call.span.end - 1
    end = len(module.document.text[:last].rstrip().rstrip(","))
    return (Edit(Span(end, end), f", {text}"),)


RULE = Rule(
    code="RK301",
    name="no-distsampler",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A training loader of a distributed program gives all data to every rank.",
    why="With N ranks an epoch has N times the work, and each sample is trained on N times. With the same seed all "
    "ranks even compute the same batch.",
    fix="Give the loader sampler=DistributedSampler(dataset) in place of shuffle=True.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("nccl")
torch.manual_seed(0)
dataset = TensorDataset(torch.randn(4096, 32), torch.randn(4096, 1))
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, 64, shuffle=True)
model = DDP(torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for x, y in loader:
        (model(x) - y).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
""",
        """import os
import torch
import torch.distributed as dist
import torchvision
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

def main():
    dist.init_process_group("nccl")
    dataset = torchvision.datasets.MNIST("data", train=True)
    loader = DataLoader(dataset, batch_size=64, shuffle=True)
    model = DDP(torch.nn.Linear(784, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x.flatten(1)), y)
            loss.backward()
            optimizer.step()

main()
""",
    ),
    silent=(
        """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

class Stream(IterableDataset):
    def __iter__(self):
        yield from read()

def main():
    dist.init_process_group("nccl")
    loader = DataLoader(Stream(), batch_size=64)
    model = DDP(torch.nn.Linear(784, 10))
    for x, y in loader:
        model(x.flatten(1)).sum().backward()

main()
""",
        """import torch
import torchvision
from accelerate import Accelerator
from torch.utils.data import DataLoader

accelerator = Accelerator()
loader = DataLoader(torchvision.datasets.MNIST("data"), batch_size=64, shuffle=True)
model, loader = accelerator.prepare(torch.nn.Linear(784, 10), loader)
for x, y in loader:
    accelerator.backward(model(x.flatten(1)).sum())
""",
    ),
)
