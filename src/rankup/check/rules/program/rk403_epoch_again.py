"""A resumed run makes the last epoch again."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.frameworks import Does
from rankup.check.facts.program.module import Scope, place
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.snapshots import (
    Snapshot,
    assigned_from,
    is_loop_counter,
    read_keys,
    snapshots,
    starts_a_range,
)
from rankup.check.rule import Match, Rule, Safety
from rankup.check.rules.edits import replaced
from rankup.check.rules.queries import loads, match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if program.gets(Does.LOOP) or not loads(program):
        return
    reads = read_keys(program)
    for snapshot in snapshots(program):
        for entry in snapshot.entries:
            if entry.key not in reads or "epoch" not in entry.key.lower():
                continue
            if not is_loop_counter(program, entry.value, entry.scope) or not _after_training(
                program, snapshot
            ):
                continue
            if all(_starts_there(program, node, scope) for node, scope in reads[entry.key]):
                yield match(
                    entry.module,
                    entry.value,
                    f'"{entry.key}" is the epoch that has just been made, and a resumed run starts with it again.',
                    replaced(entry.module, entry.value, f"{ast.unparse(entry.value)} + 1"),
                )


def _starts_there(program: Program, node: ast.Subscript, scope: Scope) -> bool:
    """Whether what is read becomes the first epoch of a range, without + 1."""
    found = assigned_from(program, node, scope, changed=False)
    return bool(found) and all(
        one is not None and "best" not in ast.unparse(one) and starts_a_range(program, one) for one in found
    )


def _after_training(program: Program, snapshot: Snapshot) -> bool:
    """Whether the save comes after the epoch's training in the loop over epochs."""
    for loop in program.data.loops:
        if not isinstance(loop.node, ast.For) or loop.loaders or not loop.trains:
            continue
        if not any(snapshot.call in program.within(call, 0) for call in loop.calls):
            continue
        inside = [call for call in loop.calls if call is snapshot.call]
        last = max(place(call.node) for call in inside or loop.calls)
        if any(program.trains(call) for call in loop.calls if place(call.node) < last):
            return True
    return False


_PROGRAM = """import torch

def main(model, loader, path):
    start = 0
    if path:
        checkpoint = torch.load(path)
        model.load_state_dict(checkpoint["model"])
        start = checkpoint["epoch"]
    for epoch in range(start, 10):
        for x, y in loader:
            model(x).sum().backward()
        torch.save({"model": model.state_dict(), "epoch": epoch}, path)
"""

RULE = Rule(
    code="RK403",
    name="epoch-again",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A snapshot names the epoch that has been made as the one to start with.",
    why="A resumed run trains that epoch a second time: the model, the schedule and the log differ from a run without "
    "interruption. PyTorch's own tutorial does this.",
    fix="Store epoch + 1.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        _PROGRAM,
        """import torch

def load(model):
    state = torch.load("last.pt", map_location="cpu")
    model.load_state_dict(state["model"])
    return state["epoch"]

def save(model, epoch):
    torch.save({"model": model.state_dict(), "epoch": epoch}, "last.pt")

def main(model, loader):
    start = load(model)
    for epoch in range(start, 10):
        for x, y in loader:
            model(x).sum().backward()
        save(model, epoch)

main(None, [])
""",
    ),
    silent=(
        _PROGRAM.replace('["epoch"]', '["epoch"] + 1'),
        _PROGRAM.replace('"epoch": epoch', '"epoch": epoch + 1'),
    ),
)
