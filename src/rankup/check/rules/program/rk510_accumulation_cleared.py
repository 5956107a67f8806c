"""Gradients are to be accumulated, and are cleared before each backward pass."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.module import Call
from rankup.check.facts.program.program import Program
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if program.frameworks - {"fairscale"}:
        return
    for step in program.methods("step"):
        stepped = step.argument("optimizer", 0) or step.base
        loop, conditions = _way(step)
        if loop is None or stepped is None or not any(_counts(test, step) for test in conditions):
            continue
        every = [call for call in step.scope.calls if _way(call) == (loop, [])]
        backwards = [call for call in step.scope.calls if call.last == "backward" and _way(call)[0] is loop]
        if not backwards or not all(call in every for call in backwards):
            continue  # the other passes may have no gradients of this optimizer
        for call in every:
            if call.last == "zero_grad" and call.base and ast.unparse(call.base) == ast.unparse(stepped):
                yield Match(
                    call.module.document,
                    call.span,
                    f"{ast.unparse(call.node.func)}() runs in every pass of the loop, and "
                    f"{ast.unparse(step.node.func)}() at line {step.node.lineno} only in some: the gradients of the "
                    "other passes are thrown away.",
                )
                break


def _way(call: Call) -> tuple[ast.AST | None, list[ast.expr]]:
    """The loop around a call, and the conditions between them."""
    conditions: list[ast.expr] = []
    for holder, part in call.module.ancestors(call.node):
        if isinstance(holder, (ast.For, ast.While)) and part == "body":
            return holder, conditions
        if isinstance(holder, (ast.If, ast.IfExp)) and part in {"body", "orelse"}:
            conditions.append(holder.test)
        elif isinstance(holder, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Try, ast.Match)):
            break
    return None, conditions


def _counts(test: ast.expr, step: Call) -> bool:
    """Whether a condition is about every n-th pass: ``(i + 1) % 4 == 0``, or a variable that holds this."""
    asked: list[ast.AST] = [test]
    for name in ast.walk(test):
        if isinstance(name, ast.Name):
            asked += [
                made.value for made in step.scope.definitions.get(name.id, ()) if made.value is not None
            ]
    return any(
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)
        for one in asked
        for node in ast.walk(one)
    )


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
