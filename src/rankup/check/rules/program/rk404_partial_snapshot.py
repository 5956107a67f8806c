"""A run is resumed without the state of its optimizer."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from rankup.check.facts.program.module import Module
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.snapshots import Snapshot, read_keys, snapshots
from rankup.check.facts.program.value import objects, the_constant
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import make_optimizers, makes_optimizer
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
            or not _resumes(program, epochs[0].key)
        ):
            continue
        unread = _unread(program, snapshot, reads)
        if unread:
            yield Match(
                snapshot.call.module.document,
                snapshot.call.span,
                f'The snapshot holds the state of {stateful} ("{unread}"), and nothing loads it.',
            )
        if snapshot.has("optim", "opt", "state.", "trainer"):
            continue
        if len([s for s in program.named("torch.save") if "optim" in ast.unparse(s.node).lower()]):
            continue
        yield Match(
            snapshot.call.module.document,
            snapshot.call.span,
            f'The snapshot holds the epoch ("{epochs[0].key}") and the model, but not the state of {stateful}.',
        )


def _with_state(program: Program) -> str | None:
    """The optimizer's name if it has a state that matters: not plain SGD."""
    for call in program.calls:
        if makes_optimizer(call):
            momentum = call.argument("momentum", 2)
            if call.last == "SGD" and (
                momentum is None or the_constant(program.value(call, "momentum", 2)) == 0
            ):
                continue
            return call.last
    return None


def _unread(program: Program, snapshot: Snapshot, reads: Mapping[str, object]) -> str | None:
    """The key of an optimizer's state that is saved and certainly never loaded."""
    loads = program.methods("load_state_dict")
    plain = all(
        call.node.args
        and isinstance(call.node.args[0], ast.Subscript)
        and isinstance(call.node.args[0].slice, ast.Constant)
        for call in loads
    )
    if not loads or not plain or program.methods("set_optimizer_state_dict", "set_state_dict"):
        return None
    for entry in snapshot.entries:
        value = entry.value
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or entry.key in reads:
            continue
        made = objects(program.values.of(value.func.value, entry.scope))
        if value.func.attr != "state_dict" or not make_optimizers(made):
            continue
        texts = [
            node.value
            for module in program.modules
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Constant)
        ]
        if texts.count(entry.key) <= len([e for e in snapshot.entries if e.key == entry.key]):
            return entry.key
    return None


def _resumes(program: Program, key: str) -> bool:
    """Whether the epoch that is read is where a loop starts."""
    for module in program.modules:
        for node in module.of(ast.Assign, ast.Return):
            if (
                isinstance(node, (ast.Assign, ast.Return))
                and node.value is not None
                and f"['{key}']" in ast.unparse(node.value)
                and any(_starts_a_loop(program, holder) for holder in _assigned(program, module, node))
            ):
                return True
    return False


def _assigned(program: Program, module: Module, node: ast.Assign | ast.Return) -> list[ast.Assign]:
    """The assignment itself; of a ``return`` those of what the function's callers get."""
    if isinstance(node, ast.Assign):
        return [node]
    sites = program.graph.sites.get(module.scope_of(node), ())
    holders = [site.call.module.parents[site.call.node][0] for site in sites]
    return [holder for holder in holders if isinstance(holder, ast.Assign)]


def _starts_a_loop(program: Program, node: ast.Assign) -> bool:
    last = ast.unparse(node.targets[0]).rpartition(".")[2]
    return any(
        isinstance(loop.node, ast.For) and last in ast.unparse(loop.node.iter) for loop in program.data.loops
    )


RULE = Rule(
    code="RK404",
    name="partial-snapshot",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A run is resumed without the state of the optimizer.",
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
    for epoch in range(10):
        for x, y in loader:
            model(x).sum().backward()
            optimizer.step()
        torch.save({"model": model.state_dict(), "epoch": epoch + 1}, path)

main(None, [], "")
""",
        """import torch

def main(model, loader):
    optimizer = torch.optim.Adam(model.parameters())
    state = torch.load("last.pt", map_location="cpu")
    for name, part in (("model", model), ("optimizer", optimizer)):
        part.load_state_dict(state[name])
    start = state["epoch"]
    for epoch in range(start, 10):
        for x, y in loader:
            model(x).sum().backward()
            optimizer.step()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}, "last.pt")

main(None, [])
""",
    ),
)
