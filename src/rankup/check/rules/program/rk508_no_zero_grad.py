"""Gradients are never cleared."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.flow import LOOPS, holders
from rankup.check.facts.program.frameworks import Does
from rankup.check.facts.program.program import Program
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import is_optimizer, match, stepped_by
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if not program.whole or program.gets(Does.GRADIENTS) or _clears(program):
        return
    training = {
        loop for call in program.methods("backward") for loop in holders(call.module, call.node, *LOOPS)
    }
    for call in program.methods("step"):
        in_training = training & set(holders(call.module, call.node, *LOOPS))
        if in_training and is_optimizer(program, stepped_by(call), call.scope):
            message = f"{call.text}() is called in a loop, and nothing clears the gradients."
            yield match(call.module, call.node, message)
            return


def _clears(program: Program) -> bool:
    """Whether gradients are cleared or replaced anywhere, or may be by what gets the model or the optimizer."""
    for module in program.modules:
        if any("zero_grad" in node.attr or node.attr == "grad" for node in module.of(ast.Attribute)):
            return True
        if any("zero_grad" in text for text in module.texts):
            return True
    return bool(program.named("torch.autograd.grad", "torch.autograd.functional.jacobian"))


_HEAD = """import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""

RULE = Rule(
    code="RK508",
    name="no-zero-grad",
    severity=Severity.ERROR,
    confidence=Confidence.LIKELY,
    what="A training loop never clears the gradients.",
    why="Gradients add up: backward() adds to those that are there. Each step uses the sum over all steps before it, "
    "and the training diverges or learns slowly.",
    fix="Call optimizer.zero_grad() in each step, before backward().",
    find=find,
    fires=(
        _HEAD
        + """for _ in range(10):
    loss = model(torch.randn(8, 4)).sum()
    loss.backward()
    optimizer.step()
""",
        _HEAD
        + """scaler = torch.amp.GradScaler()
for _ in range(10):
    loss = model(torch.randn(8, 4)).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    ),
    silent=(
        _HEAD
        + """for _ in range(10):
    loss = model(torch.randn(8, 4)).sum()
    loss.backward()
    optimizer.step()
    model.zero_grad()
""",
        _HEAD
        + """loss = model(torch.randn(8, 4)).sum()  # one step
loss.backward()
optimizer.step()
""",
    ),
)
