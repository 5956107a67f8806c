"""Training data that always come in the same order."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.data import Loader
from rankup.check.facts.program.frameworks import Does
from rankup.check.facts.program.loops import epochs_around
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sharding import expressions, is_iterable, is_synthetic
from rankup.check.facts.program.sounds import ORDERED, says
from rankup.check.facts.program.value import the_constant
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import argument_added, keyword_removed, replaced
from rankup.check.rules.queries import dividing, match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    for loader in program.data.loaders:
        given = loader.call.argument("dataset", 0)
        if given is None or loader.call.spread or not _may_be_in_order(program, loader, given):
            continue
        if not any(epochs_around(loop, program) for loop in loader.loops if loop.trains):
            if _is_lightnings(program, loader):
                yield from _unshuffled(program, loader, "on one device Lightning keeps the order.")
            continue
        samplers = dividing(program, loader)
        if samplers and not program.gets(Does.SAMPLER):
            fixed = [the_constant(program.value(one, "shuffle", 3)) is False for one in samplers]
            if all(fixed):
                edit = keyword_removed(samplers[0], "shuffle")
                yield match(
                    samplers[0].module,
                    samplers[0].node,
                    "DistributedSampler(shuffle=False) for training: every epoch has the same batches.",
                    *([edit] if edit is not None else []),
                )
        elif program.named("accelerate.Accelerator"):
            yield from _unshuffled(program, loader, "Accelerate keeps the order.")


def _is_lightnings(program: Program, loader: Loader) -> bool:
    """Whether Lightning gets a loader as it is. On several devices it replaces the sampler by one that shuffles."""
    trainers = [call for call in program.methods("Trainer") if call.name]
    several = program.many_ranks or any(map(program.several_devices, trainers))
    return (
        program.frameworks == {"lightning"} and loader.call.scope.name == "train_dataloader" and not several
    )


def _unshuffled(program: Program, loader: Loader, order: str) -> Iterator[Match]:
    call, given = loader.call, loader.call.argument("shuffle", 2)
    if loader.sampled or (
        given is not None and the_constant(program.values.of(given, call.scope)) is not False
    ):
        return
    edit: Edit = (
        argument_added(call, "shuffle=True") if given is None else replaced(call.module, given, "True")
    )
    message = f"This training loader does not shuffle; {order}"
    yield match(call.module, call.node, message, edit, fix="Give the loader shuffle=True.")


def _may_be_in_order(program: Program, loader: Loader, given: ast.expr) -> bool:
    """Whether the data have an order that nobody wanted, and nothing shuffles them before."""
    scope = loader.call.scope
    if is_iterable(program, given, scope) or is_synthetic(program, given, scope):
        return False
    return not any(says(part, ORDERED) for part, _ in expressions(program, given, scope))


RULE = Rule(
    code="RK311",
    name="never-shuffled",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="Training data are never shuffled.",
    why="Every epoch has the same batches in the same order. With data sorted by class the model hardly learns.",
    fix="Leave DistributedSampler's shuffle at True and call set_epoch; with Accelerate and Lightning give the loader "
    "shuffle=True.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """import lightning as L
import torchvision
from torch.utils.data import DataLoader

class Data(L.LightningDataModule):
    def setup(self, stage=None):
        self.train = torchvision.datasets.MNIST("data", train=True)

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=64, num_workers=4)
""",
        """import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def main(dataset, model, optimizer):
    dist.init_process_group("nccl")
    sampler = DistributedSampler(dataset, shuffle=False)
    loader = DataLoader(dataset, 32, sampler=sampler)
    for epoch in range(10):
        for x, y in loader:
            model(x).sum().backward()
            optimizer.step()
""",
    ),
    silent=(
        """import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def main(dataset, test, model, optimizer):
    dist.init_process_group("nccl")
    loader = DataLoader(dataset, 32, sampler=DistributedSampler(dataset))
    test_loader = DataLoader(test, 32, sampler=DistributedSampler(test, shuffle=False))
    for epoch in range(10):
        for x, y in loader:
            model(x).sum().backward()
            optimizer.step()
        for x, y in test_loader:
            model(x)
""",
        """import torchvision
from accelerate import Accelerator
from torch.utils.data import DataLoader

def main(model, optimizer):
    accelerator = Accelerator()
    loader = DataLoader(torchvision.datasets.MNIST("data"), batch_size=64, shuffle=True)
    for epoch in range(5):
        for x, y in loader:
            accelerator.backward(model(x).sum())
            optimizer.step()
""",
    ),
)
