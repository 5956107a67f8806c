"""A DistributedSampler that shuffles, and no set_epoch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.data import Loader, Loop
from rankup.check.facts.program.frameworks import Does
from rankup.check.facts.program.loops import epochs_around
from rankup.check.facts.program.module import Call, Scope, dotted, same
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sounds import says
from rankup.check.facts.program.value import Kind, kinds, the_constant
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import alone, lines_before, surely_before
from rankup.check.rules.queries import handed_over, match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if not program.whole:
        return
    for sampler in program.data.samplers:
        loader = next((one for one in program.data.loaders if sampler in one.samplers), None)
        unshuffled = the_constant(program.value(sampler, "shuffle", 3)) is False
        seed = sampler.argument("seed", 4)  # DistributedSampler(data, seed=epoch) in each epoch
        reseeded = seed is not None and kinds(program.values.of(seed, sampler.scope)) != {Kind.CONSTANT}
        if loader is None or not loader.trains or unshuffled or sampler.spread or reseeded:
            continue
        epochs = [outer for loop in loader.loops for outer in epochs_around(loop, program)]
        elsewhere = not loader.loops and not program.gets(Does.EPOCH)  # where the loader goes is not known
        if elsewhere and not program.methods("set_epoch"):
            epochs = [loop for loop in program.data.loops if _is_over_epochs(loop)]
        if not epochs or (program.gets(Does.EPOCH) and handed_over(program, loader)):
            continue
        told = [call for call in program.methods("set_epoch") if _may_be_of(program, call, sampler, loader)]
        given = [program.values.of(call.node.args[0], call.scope) for call in told if call.node.args]
        if told and not all(kinds(value) == {Kind.CONSTANT} for value in given):
            continue
        problem = "is never told the epoch: set_epoch() is not called anywhere."
        if told:
            problem = "always gets the same epoch: set_epoch() is called with a constant."
        edits = () if told else _inserted(sampler, loader, epochs[0])
        yield match(
            sampler.module,
            sampler.node,
            f"This sampler shuffles and {problem}",
            *edits,
            confidence=Confidence.LIKELY if elsewhere else None,
        )


def _is_over_epochs(loop: Loop) -> bool:
    return isinstance(loop.node, ast.For) and says(loop.node.iter, ("epoch",))


def _may_be_of(program: Program, call: Call, sampler: Call, loader: Loader) -> bool:
    """Whether a set_epoch can be that of ``sampler``. What is unknown can."""
    base = call.base
    if isinstance(base, ast.Attribute) and base.attr in {"sampler", "batch_sampler"}:
        made = program.made(base.value, call.scope)
        return not made or loader.call in made or not all(program.data.loader_of(one) for one in made)
    if base is None or kinds(program.values.of(base, call.scope)) - {Kind.OBJECT, Kind.CONSTANT}:
        return True
    made = program.made(base, call.scope)
    return sampler in made or not made or not all(one in program.data.samplers for one in made)


def _inserted(sampler: Call, loader: Loader, epochs: Loop) -> tuple[Edit, ...]:
    """``sampler.set_epoch(epoch)`` as the first line of the epochs' loop, where the names allow it."""
    node, module = epochs.node, epochs.scope.module
    if not isinstance(node, ast.For) or not isinstance(node.target, ast.Name) or node.target.id == "_":
        return ()
    if not alone(module, node.body[0]) or sampler.module is not module:
        return ()
    for call, attribute in ((sampler, ""), (loader.call, ".sampler")):
        statement = module.statement(call.node) if call.module is module else None
        seen = call.scope in (epochs.scope, module.scope)
        if not isinstance(statement, ast.Assign) or statement.value is not call.node or not seen:
            continue
        if attribute and "batch_sampler" in call.keywords:
            continue  # its sampler is another one
        parts = dotted(statement.targets[0]) or []
        always = surely_before(
            module, statement, node if call.scope is epochs.scope else module.tree.body[-1]
        )
        others = _bound(call.scope, statement.targets[0]) - 1
        if (len(parts) == 1 or (len(parts) == 2 and parts[0] == "self")) and (always or others):
            name = f"{'.'.join(parts)}{attribute}"
            line = f"{name}.set_epoch({node.target.id})"
            given = not attribute or call.argument("sampler") is sampler.node
            if always and not others and given:
                return (lines_before(module, node.body[0], line),)
            # In one process it is None, or a sampler that knows no epochs.
            asked = f"if isinstance({name}, {sampler.text}):"
            return (lines_before(module, node.body[0], asked, f"    {line}"),)
    return ()


def _bound(scope: Scope, target: ast.expr) -> int:
    """How many times a function gives a name or an attribute a value."""
    given = [one for node in ast.walk(scope.node) if isinstance(node, ast.Assign) for one in node.targets]
    own = isinstance(target, ast.Name) and target.id in scope.all_parameters
    return own + sum(same(one, target) for one in given)


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
