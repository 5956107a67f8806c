"""Gradients are never cleared."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.module import Call
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import objects
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import make_optimizers
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if not program.whole or program.frameworks or _clears(program):
        return
    for call in program.methods("step"):
        if _of_optimizer(program, call) and _in_loop_with_backward(program, call):
            yield Match(
                call.module.document,
                call.span,
                f"{ast.unparse(call.node.func)}() is called in a loop, and nothing clears the gradients.",
            )
            return


def _clears(program: Program) -> bool:
    """Whether gradients are cleared or replaced anywhere, or may be by what gets the model or the optimizer."""
    for module in program.modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and ("zero_grad" in node.attr or node.attr == "grad"):
                return True
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "zero_grad" in node.value:
                return True
    return bool(program.named("torch.autograd.grad", "torch.autograd.functional.jacobian"))


def _of_optimizer(program: Program, call: Call) -> bool:
    """``optimizer.step()``, or ``scaler.step(optimizer)``."""
    given = call.argument("optimizer", 0) if call.node.args or call.node.keywords else call.base
    if given is None:
        return False
    return make_optimizers(objects(program.values.of(given, call.scope)))


def _in_loop_with_backward(program: Program, call: Call) -> bool:
    loops = {h for h, _ in call.module.ancestors(call.node) if isinstance(h, (ast.For, ast.While))}
    return any(
        other.module is call.module and loops & {holder for holder, _ in other.module.ancestors(other.node)}
        for other in program.methods("backward")
    )


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
