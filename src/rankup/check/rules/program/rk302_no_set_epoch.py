"""A DistributedSampler that shuffles, and no set_epoch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.data import Loader, Loop
from rankup.check.facts.program.loops import around, repeats
from rankup.check.facts.program.module import Call
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import Kind, kinds, objects, the_constant
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import alone, lines_before
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if not program.whole or program.frameworks:
        return
    called = program.methods("set_epoch")
    for sampler in program.data.samplers:
        if the_constant(program.value(sampler, "shuffle", 3)) is False or sampler.spread:
            continue
        loader = _loader_of(program, sampler)
        if loader is None or not loader.trains:
            continue
        epochs = [loop for training in loader.loops for loop in _epochs_around(program, training)]
        if not epochs:
            continue
        own = [call for call in called if _may_be_of(program, call, sampler, loader)]
        same = own and all(
            kinds(program.values.of(c.node.args[0], c.scope)) == {Kind.CONSTANT} for c in own if c.node.args
        )
        if own and not same:
            continue
        problem = "always gets the same epoch" if own else "is never told the epoch"
        yield Match(
            sampler.module.document,
            sampler.span,
            f"This sampler shuffles and {problem}: set_epoch() is "
            + ("called with a constant." if own else "not called anywhere."),
            () if own else _inserted(sampler, loader, epochs[0]),
        )


def _loader_of(program: Program, sampler: Call) -> Loader | None:
    return next((loader for loader in program.data.loaders if sampler in loader.samplers), None)


def _epochs_around(program: Program, training: Loop) -> list[Loop]:
    return [loop for loop in around(training, program) if not loop.loaders and repeats(loop, program)]


def _may_be_of(program: Program, call: Call, sampler: Call, loader: Loader) -> bool:
    """Whether a set_epoch can be that of ``sampler``. What is unknown can."""
    base = call.base
    if base is None:
        return True
    if isinstance(base, ast.Attribute) and base.attr in {"sampler", "batch_sampler"}:
        made = objects(program.values.of(base.value, call.scope))
        return not made or loader.call in made or not all(program.data.loader_of(one) for one in made)
    value = program.values.of(base, call.scope)
    if kinds(value) - {Kind.OBJECT, Kind.CONSTANT}:
        return True
    others = objects(value)
    return sampler in others or not others or not all(one in program.data.samplers for one in others)


def _inserted(sampler: Call, loader: Loader, epochs: Loop) -> tuple[Edit, ...]:
    """``sampler.set_epoch(epoch)`` as the first line of the epochs' loop, where the names allow it."""
    node, module = epochs.node, epochs.scope.module
    if not isinstance(node, ast.For) or not isinstance(node.target, ast.Name) or node.target.id == "_":
        return ()
    first = node.body[0]
    if not alone(module, first) or sampler.module is not module:
        return ()
    for call, attribute in ((sampler, ""), (loader.call, ".sampler")):
        statement = module.statement(call.node) if call.module is module else None
        if isinstance(statement, ast.Assign) and statement.value is call.node and call.scope in _seen(epochs):
            target = statement.targets[0]
            if isinstance(target, ast.Name) or _is_own(target):
                return (
                    lines_before(
                        module, first, f"{ast.unparse(target)}{attribute}.set_epoch({node.target.id})"
                    ),
                )
    return ()


def _is_own(target: ast.expr) -> bool:
    return (
        isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    )


def _seen(loop: Loop) -> list[object]:
    return [loop.scope, loop.scope.module.scope]


RULE = Rule(
    code="RK302",
    name="no-set-epoch",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="A DistributedSampler shuffles, and its set_epoch is never called.",
    why="The sampler's order depends on its seed and its epoch only. Without set_epoch every epoch has the same order, "
    "and every rank sees the same part of the data in all epochs (pytorch#31771).",
    fix="Call sampler.set_epoch(epoch) at the start of each epoch, on all ranks.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def main(dataset, model, optimizer):
    dist.init_process_group("nccl")
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler)
    for epoch in range(10):
        for x, y in loader:
            loss = model(x).sum()
            loss.backward()
            optimizer.step()

main(None, None, None)
""",
        """import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler as DS

def train_epoch(model, loader, optimizer):
    for x, y in loader:
        model(x).sum().backward()
        optimizer.step()

def main(dataset, model, optimizer, epochs):
    dist.init_process_group("gloo")
    loader = DataLoader(dataset, 32, sampler=DS(dataset, shuffle=True))
    for epoch in range(epochs):
        train_epoch(model, loader, optimizer)

main(None, None, None, 3)
""",
    ),
    silent=(
        """import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def main(dataset, model, optimizer):
    dist.init_process_group("nccl")
    loader = DataLoader(dataset, batch_size=32, sampler=DistributedSampler(dataset))
    for x, y in loader:  # one epoch
        model(x).sum().backward()
        optimizer.step()

main(None, None, None)
""",
        """import lightning as L
from torch.utils.data import DataLoader, DistributedSampler

def loader(dataset):
    return DataLoader(dataset, batch_size=32, sampler=DistributedSampler(dataset))

L.Trainer(max_epochs=3).fit(None, loader(None))
""",
    ),
)
