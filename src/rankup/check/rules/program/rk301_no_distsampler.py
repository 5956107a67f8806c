"""Every rank goes through the whole data set."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.program.data import Loader
from rankup.check.facts.program.module import identifiers
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sharding import is_iterable, is_sharded, is_synthetic, seeds_by_rank
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import name_for, replaced
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if not program.whole or program.frameworks or not program.inits or not program.wraps:
        return
    if program.methods("parallelize_module", "init_device_mesh", "DeviceMesh"):
        return
    by_seed = seeds_by_rank(program)  # the ranks draw different batches on purpose
    for loader in program.data.loaders:
        call = loader.call
        given = call.argument("dataset", 0)
        if loader.sampled or call.spread or given is None or not any(loop.trains for loop in loader.loops):
            continue
        idle = _has_idle_sampler(program, given)
        if by_seed and not idle:
            continue
        if not program.on_all_ranks(call) or program.guards.limited(call.node, call.scope):
            continue
        if _alternative(program, loader) or is_iterable(program, given, call.scope):
            continue
        if is_sharded(program, given, call.scope) or (is_synthetic(program, given, call.scope) and not idle):
            continue
        yield Match(
            call.module.document,
            call.span,
            "This training loader has no DistributedSampler: every rank trains on all of the data in each epoch.",
            _edit(loader, given),
        )


def _has_idle_sampler(program: Program, given: ast.expr) -> bool:
    """Whether a DistributedSampler was made for the data, and no loader got it."""
    used = {sampler for loader in program.data.loaders for sampler in loader.samplers}
    name = ast.unparse(given)
    return any(
        sampler not in used and name == ast.unparse(dataset)
        for sampler in program.data.samplers
        if (dataset := sampler.argument("dataset", 0)) is not None
    )


def _alternative(program: Program, loader: Loader) -> bool:
    """Whether another loader with a sampler may take its place: the branch of a single process."""
    module = loader.call.module
    for holder, _ in module.ancestors(loader.call.node):
        if isinstance(holder, (ast.If, ast.IfExp)) and any(
            word in name.lower()
            for name in identifiers(holder.test)
            for word in ("dist", "world", "ddp", "sampler", "multi", "parallel", "rank")
        ):
            return True
    return any(
        other is not loader and other.sampled and set(other.loops) & set(loader.loops)
        for other in program.data.loaders
    )


def _edit(loader: Loader, given: ast.expr) -> tuple[Edit, ...]:
    call = loader.call
    sampler = name_for(call.module, "torch.utils.data.DistributedSampler") or name_for(
        call.module, "torch.utils.data.distributed.DistributedSampler"
    )
    if sampler is None or not isinstance(given, (ast.Name, ast.Attribute)):
        return ()
    text = f"sampler={sampler}({ast.unparse(given)})"
    shuffle = next((k for k in call.node.keywords if k.arg == "shuffle"), None)
    if shuffle is not None:
        return (replaced(call.module, shuffle, text),)
    last = call.module.span(call.node).end - 1
    end = len(call.module.document.text[:last].rstrip().rstrip(","))
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
