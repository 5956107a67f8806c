"""A run is resumed without the state of its optimizer."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program import Program
from rankup.check.facts.program_snapshots import read_keys, snapshots
from rankup.check.facts.program_value import the_constant
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if not program.whole or program.frameworks or not program.named("torch.load"):
        return
    reads = read_keys(program)
    stateful = _with_state(program)
    if stateful is None:
        return
    for snapshot in snapshots(program):
        epochs = [e for e in snapshot.entries if "epoch" in e.key.lower() and e.key in reads]
        if (
            not epochs
            or not snapshot.has("model", "net", "state_dict")
            or snapshot.has("optim", "opt", "state.", "trainer")
        ):
            continue
        if len([s for s in program.named("torch.save") if "optim" in ast.unparse(s.node).lower()]):
            continue
        if not _resumes(program, epochs[0].key):
            continue
        yield Match(
            snapshot.call.module.document,
            snapshot.call.span,
            f'The snapshot holds the epoch ("{epochs[0].key}") and the model, but not the state of {stateful}.',
        )


def _with_state(program: Program) -> str | None:
    """The optimizer's name if it has a state that matters: not plain SGD."""
    for call in program.calls:
        if (
            call.name.startswith("torch.optim.")
            and ".lr_scheduler" not in call.name
            and call.last[:1].isupper()
        ):
            momentum = call.argument("momentum", 2)
            if call.last == "SGD" and (
                momentum is None or the_constant(program.value(call, "momentum", 2)) == 0
            ):
                continue
            return call.last
    return None


def _resumes(program: Program, key: str) -> bool:
    """Whether the epoch that is read is where a loop starts."""
    for module in program.modules:
        for node in module.of(ast.Assign):
            if isinstance(node, ast.Assign) and f"['{key}']" in ast.unparse(node.value):
                last = ast.unparse(node.targets[0]).rpartition(".")[2]
                for loop in program.data.loops:
                    if isinstance(loop.node, ast.For) and last in ast.unparse(loop.node.iter):
                        return True
    return False


RULE = Rule(
    code="RK404",
    name="partial-snapshot",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A run is resumed from a snapshot without the state of the optimizer.",
    why="Adam's averages and SGD's momentum start from zero again: the loss jumps after each resume, and the result "
    "differs from a run without interruption.",
    fix="Store optimizer.state_dict(), the scheduler's and the random generators' states as well, and load them.",
    find=find,
    fires=(
        """import torch

def main(model, loader, path):
    optimizer = torch.optim.Adam(model.parameters())
    start = 0
    if path:
        checkpoint = torch.load(path)
        model.load_state_dict(checkpoint["model"])
        start = checkpoint["epoch"]
    for epoch in range(start, 10):
        for x, y in loader:
            model(x).sum().backward()
            optimizer.step()
        torch.save({"model": model.state_dict(), "epoch": epoch + 1}, path)

main(None, [], "")
""",
        """import torch
from torch.optim import SGD

def save(net, epoch):
    torch.save(dict(net=net.state_dict(), epoch=epoch + 1), "last.pt")

def main(net, loader):
    optimizer = SGD(net.parameters(), lr=0.1, momentum=0.9)
    state = torch.load("last.pt")
    net.load_state_dict(state["net"])
    first = state["epoch"]
    for epoch in range(first, 10):
        for x, y in loader:
            net(x).sum().backward()
            optimizer.step()
        save(net, epoch)

main(None, [])
""",
    ),
    silent=(
        """import torch

def main(model, loader, path):
    optimizer = torch.optim.Adam(model.parameters())
    start = 0
    if path:
        checkpoint = torch.load(path)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        start = checkpoint["epoch"]
    for epoch in range(start, 10):
        for x, y in loader:
            model(x).sum().backward()
            optimizer.step()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}, path)

main(None, [], "")
""",
        """import torch

def main(model, loader, path):
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(10):
        for x, y in loader:
            model(x).sum().backward()
            optimizer.step()
        torch.save({"model": model.state_dict(), "epoch": epoch + 1}, path)

main(None, [], "")
""",
    ),
)
