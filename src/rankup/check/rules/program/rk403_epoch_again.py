"""A resumed run makes the last epoch again."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.data import Loop
from rankup.check.facts.program.module import Scope, place
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.snapshots import Entry, Snapshot, is_loop_counter, read_keys, snapshots
from rankup.check.rule import Match, Rule, Safety
from rankup.check.rules.edits import replaced
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if (
        "lightning" in program.frameworks
        or "hf-trainer" in program.frameworks
        or not program.named("torch.load")
    ):
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
                yield _match(entry)


def _match(entry: Entry) -> Match:
    text = ast.unparse(entry.value)
    return Match(
        entry.module.document,
        entry.module.span(entry.value),
        f'"{entry.key}" is the epoch that has just been made, and a resumed run starts with it again.',
        (replaced(entry.module, entry.value, f"{text} + 1"),),
    )


def _starts_there(program: Program, node: ast.Subscript, scope: Scope) -> bool:
    """Whether what is read becomes the first epoch of a range, without + 1."""
    holder = scope.module.parents[node][0]
    while isinstance(holder, ast.Call) and ast.unparse(holder.func) == "int":
        holder = scope.module.parents[holder][0]
    if isinstance(holder, ast.Return):  # start = load(model)
        sites = program.graph.sites.get(scope, ())
        holders = [site.call.module.parents[site.call.node][0] for site in sites]
        return bool(holders) and all(_is_first(program, holder) for holder in holders)
    return _is_first(program, holder)


def _is_first(program: Program, holder: ast.AST) -> bool:
    """Whether an assignment sets the first epoch of a range."""
    if not isinstance(holder, ast.Assign) or len(holder.targets) != 1:
        return False
    target = ast.unparse(holder.targets[0])
    last = target.rpartition(".")[2]
    if "best" in target:
        return False
    for loop in program.data.loops:
        if isinstance(loop.node, ast.For) and isinstance(loop.node.iter, ast.Call):
            arguments = loop.node.iter.args
            if len(arguments) >= 2 and ast.unparse(arguments[0]).rpartition(".")[2] == last:
                return True
    return False


def _after_training(program: Program, snapshot: Snapshot) -> bool:
    """Whether the save comes after the epoch's training in the loop over epochs."""
    for loop in _holding(program, snapshot):
        if any(
            _trains(program, loop, call.node)
            for call in loop.calls
            if place(call.node) < _last_save(loop, snapshot)
        ):
            return True
    return False


def _holding(program: Program, snapshot: Snapshot) -> list[Loop]:
    return [
        loop
        for loop in program.data.loops
        if isinstance(loop.node, ast.For)
        and not loop.loaders
        and loop.trains
        and _saves(program, loop, snapshot)
    ]


def _saves(program: Program, loop: Loop, snapshot: Snapshot) -> bool:
    return any(
        call is snapshot.call
        or any(snapshot.call in inner.calls for t in program.graph.called.get(call, ()) for inner in [t])
        for call in loop.calls
    )


def _last_save(loop: Loop, snapshot: Snapshot) -> tuple[int, int]:
    """The place in the loop from which the save is made."""
    inside = [call for call in loop.calls if call is snapshot.call]
    return max(place(call.node) for call in inside or loop.calls)


def _trains(program: Program, loop: Loop, node: ast.AST) -> bool:
    call = program.values.call(node)
    return call is not None and (
        call.last == "backward"
        or any(
            c.last == "backward"
            for t in program.graph.called.get(call, ())
            for s in program.graph.reached(t, 3)
            for c in s.calls
        )
    )


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
        """import torch

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
""",
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
        """import torch

def main(model, loader, path):
    start = 0
    if path:
        checkpoint = torch.load(path)
        model.load_state_dict(checkpoint["model"])
        start = checkpoint["epoch"] + 1
    for epoch in range(start, 10):
        for x, y in loader:
            model(x).sum().backward()
        torch.save({"model": model.state_dict(), "epoch": epoch}, path)
""",
        """import torch

def main(model, loader, path):
    start = 0
    if path:
        checkpoint = torch.load(path)
        model.load_state_dict(checkpoint["model"])
        start = checkpoint["epoch"]
    for epoch in range(start, 10):
        for x, y in loader:
            model(x).sum().backward()
        torch.save({"model": model.state_dict(), "epoch": epoch + 1}, path)
""",
    ),
)
