"""Training data that always come in the same order."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.data import Loader
from rankup.check.facts.program.loops import around, repeats
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sharding import expressions, is_iterable, is_synthetic
from rankup.check.facts.program.value import the_constant
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import argument_added, keyword_removed, replaced
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if program.frameworks == {"lightning"}:
        yield from _of_lightning(program)
    if program.frameworks - {"accelerate"}:
        return
    for loader in program.data.loaders:
        call = loader.call
        given = call.argument("dataset", 0)
        if given is None or call.spread or not any(loop.trains for loop in loader.loops):
            continue
        if not _epochs(program, loader) or is_iterable(program, given, call.scope):
            continue
        if is_synthetic(program, given, call.scope) or _shuffled_before(program, loader):
            continue
        samplers = [
            s
            for s in loader.samplers
            if s in program.data.samplers and the_constant(program.value(s, "shuffle", 3)) is False
        ]
        if samplers and len(samplers) == len(loader.samplers):
            edit = keyword_removed(samplers[0], "shuffle")
            yield Match(
                samplers[0].module.document,
                samplers[0].span,
                "DistributedSampler(shuffle=False) for training: every epoch has the same batches.",
                (edit,) if edit is not None else (),
            )
        elif (
            "accelerate" in program.frameworks
            and not loader.sampled
            and program.named("accelerate.Accelerator")
        ):
            value = program.value(call, "shuffle", 2)
            if not value or the_constant(value) is False:
                yield Match(
                    call.module.document,
                    call.span,
                    "This training loader does not shuffle; Accelerate keeps the order.",
                    _shuffling(loader),
                )


def _of_lightning(program: Program) -> Iterator[Match]:
    """The loaders that ``train_dataloader`` returns: Lightning divides them among the ranks, in their order."""
    for loader in program.data.loaders:
        call = loader.call
        given = call.argument("dataset", 0)
        if given is None or call.spread or loader.sampled or call.scope.name != "train_dataloader":
            continue
        value = program.value(call, "shuffle", 2)
        if (value and the_constant(value) is not False) or is_iterable(program, given, call.scope):
            continue
        if is_synthetic(program, given, call.scope) or _shuffled_before(program, loader):
            continue
        yield Match(
            call.module.document,
            call.span,
            "This training loader does not shuffle; Lightning keeps the order.",
            _shuffling(loader),
        )


def _epochs(program: Program, loader: Loader) -> bool:
    return any(
        not outer.loaders and repeats(outer, program)
        for loop in loader.loops
        if loop.trains
        for outer in around(loop, program)
    )


def _shuffled_before(program: Program, loader: Loader) -> bool:
    """Whether the data are shuffled in another way, or an order is wanted."""
    given = loader.call.argument("dataset", 0)
    assert given is not None
    return any(
        "shuffle" in text or "permut" in text or "pack" in text or "sort" in text
        for part, _ in expressions(program, given, loader.call.scope)
        for text in [ast.unparse(part).lower()]
    )


def _shuffling(loader: Loader) -> tuple[Edit, ...]:
    call = loader.call
    given = call.argument("shuffle", 2)
    if given is not None:
        return (replaced(call.module, given, "True"),)
    return (argument_added(call, "shuffle=True"),)


RULE = Rule(
    code="RK311",
    name="never-shuffled",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="Training data are never shuffled.",
    why="Every epoch has the same batches in the same order. With data sorted by class the model hardly learns.",
    fix="Leave DistributedSampler's shuffle at True and call set_epoch; with Accelerate give the loader shuffle=True.",
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
