"""Cross-entropy over one class is always zero."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program import Program
from rankup.check.facts.program_module import Call
from rankup.check.facts.program_value import Value, objects, the_constant
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    losses = program.named("torch.nn.functional.cross_entropy")
    if program.named("torch.nn.CrossEntropyLoss"):
        losses += [call for call in program.calls if not call.name and _is_criterion(program, call)]
    for call in losses:
        scores = call.argument("input", 0)
        if scores is None:
            continue
        for model in objects(program.values.of(scores, call.scope)):
            if model.name or not isinstance(model.node.func, (ast.Name, ast.Attribute)):
                continue
            value = program.values.of(model.node.func, model.scope)
            if value and _one_output(program, value):
                yield Match(
                    call.module.document,
                    call.span,
                    f"{ast.unparse(model.node.func)} has one output: the cross-entropy over one class is always 0.",
                )
                break


def _is_criterion(program: Program, call: Call) -> bool:
    if not isinstance(call.node.func, (ast.Name, ast.Attribute)) or len(call.node.args) != 2:
        return False
    made = objects(program.values.of(call.node.func, call.scope))
    return bool(made) and all(one.name == "torch.nn.CrossEntropyLoss" for one in made)


def _one_output(program: Program, value: Value, seen: tuple[Call, ...] = ()) -> bool:
    """Whether a model is known to end in a Linear with one output, whatever it is wrapped in."""
    made = objects(value)
    if len(made) != len(value) or len(seen) > 8:
        return False
    for one in made:
        if one in seen:  # self.model = DDP(self.model)
            continue
        if one.name in {"torch.nn.Linear", "torch.nn.LazyLinear"}:
            if the_constant(program.value(one, "out_features", 1 if one.last == "Linear" else 0)) != 1:
                return False
        elif one in program.wraps or one.name.endswith("DataParallel"):
            if not _one_output(program, program.value(one, "module", 0), (*seen, one)):
                return False
        elif one.name == "torch.nn.Sequential" and one.node.args and not one.spread:
            if not _one_output(program, program.values.of(one.node.args[-1], one.scope), (*seen, one)):
                return False
        else:
            return False
    return bool(made)


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
