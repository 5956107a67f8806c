"""Cross-entropy over one class is always zero."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.module import Call, Scope
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import objects, the_constant
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    losses = program.named("torch.nn.functional.cross_entropy")
    if program.named("torch.nn.CrossEntropyLoss"):
        losses += [call for call in program.calls if _is_criterion(program, call)]
    for call in losses:
        for model in program.made(call.argument("input", 0), call.scope):
            function = model.node.func
            named = isinstance(function, (ast.Name, ast.Attribute)) and not model.name
            if named and _one_output(program, function, model.scope):
                message = f"{model.text} has one output: the cross-entropy over one class is always 0."
                yield match(call.module, call.node, message)
                break


def _is_criterion(program: Program, call: Call) -> bool:
    if call.name or not isinstance(call.node.func, (ast.Name, ast.Attribute)) or len(call.node.args) != 2:
        return False
    made = program.made(call.node.func, call.scope)
    return bool(made) and all(one.name == "torch.nn.CrossEntropyLoss" for one in made)


def _one_output(program: Program, node: ast.expr | None, scope: Scope, seen: tuple[Call, ...] = ()) -> bool:
    """Whether a model is known to end in a Linear with one output, whatever it is wrapped in."""
    value = program.values.of(node, scope)
    made = objects(value)
    return (
        bool(made)
        and len(made) == len(value)
        and len(seen) < 9
        and all(_ends(program, one, seen) for one in made)
    )


def _ends(program: Program, one: Call, seen: tuple[Call, ...]) -> bool:
    if one in seen:  # self.model = DDP(self.model)
        return True
    if one.name in {"torch.nn.Linear", "torch.nn.LazyLinear"}:
        outputs = program.value(one, "out_features", 1 if one.last == "Linear" else 0)
        return bool(the_constant(outputs) == 1)
    if one in program.wraps or one.name.endswith("DataParallel"):
        return _one_output(program, one.argument("module", 0), one.scope, (*seen, one))
    if one.name == "torch.nn.Sequential" and one.node.args and not one.spread:
        return _one_output(program, one.node.args[-1], one.scope, (*seen, one))
    return False


RULE = Rule(
    code="RK505",
    name="single-class-loss",
    severity=Severity.WARNING,
    confidence=Confidence.SURE,
    what="Cross-entropy is computed over one class.",
    why="The softmax of one number is 1, so the loss and all gradients are 0: nothing is trained, without a message.",
    fix="Use mse_loss for a number, binary_cross_entropy_with_logits for a yes or no, or as many outputs as classes.",
    find=find,
    fires=(
        """import torch
import torch.nn.functional as F

def main(loader):
    model = torch.nn.Linear(20, 1)
    for x, y in loader:
        output = model(x)
        loss = F.cross_entropy(output, y)
        loss.backward()
""",
        """import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

class Trainer:
    def __init__(self, model):
        self.model = DDP(model)
        self.criterion = nn.CrossEntropyLoss()

    def run(self, x, y):
        output = self.model(x)
        self.criterion(output, y).backward()

Trainer(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)))
""",
    ),
    silent=(
        """import torch
import torch.nn.functional as F

def main(loader):
    model = torch.nn.Linear(20, 10)
    for x, y in loader:
        F.cross_entropy(model(x), y).backward()
""",
        """import torch
import torch.nn.functional as F

def main(loader):
    model = torch.nn.Linear(20, 1)
    for x, y in loader:
        F.mse_loss(model(x), y).backward()
""",
    ),
)
