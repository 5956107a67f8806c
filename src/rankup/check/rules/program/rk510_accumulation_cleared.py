"""Gradients are to be accumulated, and are cleared before each backward pass."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.flow import pass_of
from rankup.check.facts.program.frameworks import Does
from rankup.check.facts.program.module import Scope, same
from rankup.check.facts.program.program import Program
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import match, stepped_by
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    for step in program.methods("step") if not program.gets(Does.GRADIENTS) else ():
        loop, conditions = pass_of(step)
        if loop is None or not any(_counts(test, step.scope) for test in conditions):
            continue
        every = [call for call in step.scope.calls if pass_of(call) == (loop, [])]
        backwards = [
            call for call in step.scope.calls if call.last == "backward" and pass_of(call)[0] is loop
        ]
        if not backwards or not all(call in every for call in backwards):
            continue  # the other passes may have no gradients of this optimizer
        cleared = [call for call in every if call.last == "zero_grad" and same(call.base, stepped_by(step))]
        for call in cleared[:1]:
            yield match(
                call.module,
                call.node,
                f"{call.text}() runs in every pass of the loop, and {step.text}() at "
                f"{step.module.line(step.node.lineno)} only in some: the gradients of the others are thrown away.",
            )


def _counts(test: ast.expr, scope: Scope) -> bool:
    """Whether a condition is about every n-th pass: ``(i + 1) % 4 == 0``, or a variable that holds this."""
    names = [node.id for node in ast.walk(test) if isinstance(node, ast.Name)]
    asked = [test, *(made.value for name in names for made in scope.definitions.get(name, ()) if made.value)]
    nodes = (node for one in asked for node in ast.walk(one))
    return any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) for node in nodes)


_HEAD = """import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(100):
"""

RULE = Rule(
    code="RK510",
    name="accumulation-cleared",
    severity=Severity.ERROR,
    confidence=Confidence.LIKELY,
    what="The optimizer steps in every n-th pass of a loop, and the gradients are cleared in each.",
    why="The gradients that should add up over n passes are thrown away: each step uses the last pass alone, and the "
    "other samples are never trained on.",
    fix="Call zero_grad() only after optimizer.step(), under the same condition.",
    find=find,
    fires=(
        _HEAD
        + """    optimizer.zero_grad()
    (model(torch.randn(8, 4)).sum() / 4).backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
""",
        _HEAD
        + """    optimizer.zero_grad()
    last = (i + 1) % 4 == 0
    (model(torch.randn(8, 4)).sum() / 4).backward()
    if last:
        optimizer.step()
""",
    ),
    silent=(
        _HEAD
        + """    (model(torch.randn(8, 4)).sum() / 4).backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
""",
        _HEAD
        + """    optimizer.zero_grad()
    for _ in range(4):
        (model(torch.randn(8, 4)).sum() / 4).backward()
    if i % 10 < 9:
        optimizer.step()
""",
    ),
)
