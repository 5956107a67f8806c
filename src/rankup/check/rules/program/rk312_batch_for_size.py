"""A batch is loaded only to learn how large it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.loops import around_call
from rankup.check.facts.program.program import Program
from rankup.check.rule import Match, Rule, Safety
from rankup.check.rules.edits import replaced
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    for call in program.methods("len"):
        loader = _first_batch(call.node)
        if loader is not None and around_call(call, program):
            name = ast.unparse(loader)
            yield match(
                call.module,
                call.node,
                f"A batch of {name} is loaded in each epoch only to read its size.",
                replaced(call.module, call.node, f"{name}.batch_size"),
            )


def _first_batch(node: ast.expr) -> ast.expr | None:
    """The loader of ``len(next(iter(loader))[0])``."""
    for name in ("len", "next", "iter"):
        if isinstance(node, ast.Subscript):
            node = node.value
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or len(node.args) != 1:
            return None
        if node.func.id != name:
            return None
        node = node.args[0]
    return node if isinstance(node, (ast.Name, ast.Attribute)) else None


RULE = Rule(
    code="RK312",
    name="batch-for-size",
    severity=Severity.WARNING,
    confidence=Confidence.SURE,
    what="In each epoch a batch is loaded only to read its size.",
    why="Each iter(loader) starts all workers and draws from the random numbers; the batch is then thrown away.",
    fix="Read loader.batch_size.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """class Trainer:
    def __init__(self, train_data):
        self.train_data = train_data

    def run_epoch(self, epoch):
        b_sz = len(next(iter(self.train_data))[0])
        print(f"epoch {epoch}, batch size {b_sz}")
        for source, targets in self.train_data:
            pass

    def train(self, epochs):
        for epoch in range(epochs):
            self.run_epoch(epoch)
""",
        """def train(loader, epochs):
    for epoch in range(epochs):
        print(len(next(iter(loader))[0]))
        for x, y in loader:
            pass
""",
    ),
    silent=(
        """def train(loader, epochs):
    print(len(next(iter(loader))[0]))
    for epoch in range(epochs):
        for x, y in loader:
            pass
""",
        """def train(loader, epochs):
    for epoch in range(epochs):
        images, labels = next(iter(loader))
        show(images)
""",
    ),
)
