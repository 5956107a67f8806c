"""A run is resumed without the state of its optimizer."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from rankup.check.facts.program.frameworks import Does
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.snapshots import Snapshot, assigned_from, read_keys, snapshots, starts_a_loop
from rankup.check.facts.program.sounds import OPTIMIZER_STATE, says
from rankup.check.facts.program.value import the_constant
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import is_optimizer, loads, makes_optimizer, match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    optimizer, has_state = _optimizer(program)
    if not program.whole or program.gets(Does.SAVE) or not loads(program) or not optimizer:
        return
    reads, saved = read_keys(program), snapshots(program)
    for snapshot in saved:
        epochs = [e.key for e in snapshot.entries if "epoch" in e.key.lower() and e.key in reads]
        if not epochs or not snapshot.has("model", "net", "state_dict"):
            continue
        starts = [
            one
            for node, scope in reads[epochs[0]]
            for one in assigned_from(program, node, scope, changed=True)
        ]
        if not any(one is not None and starts_a_loop(program, one) for one in starts):
            continue
        call, unread = snapshot.call, _unread(program, snapshot, reads)
        if unread and has_state:
            message = f'The snapshot holds the state of {optimizer} ("{unread}"), and nothing loads it.'
            yield match(call.module, call.node, message)
        # The best model, beside the last whole state; or the optimizer in a file of its own.
        elsewhere = any(other.has(*OPTIMIZER_STATE) for other in saved)
        elsewhere |= any(says(one.node, ("optim",)) for one in program.named("torch.save"))
        if not snapshot.has(*OPTIMIZER_STATE) and not elsewhere:
            yield match(
                call.module,
                call.node,
                f'The snapshot holds the epoch ("{epochs[0]}") and the model, but not the state of {optimizer}'
                + ("." if has_state else ", which has none until it gets a momentum or a schedule."),
                severity=None if has_state else Severity.NOTE,
            )


def _optimizer(program: Program) -> tuple[str, bool]:
    """The optimizer's name, and whether it has a state that matters: not plain SGD. "" if there is none."""
    found = ""
    for call in program.calls:
        if makes_optimizer(call):
            momentum = call.argument("momentum", 2)
            plain = momentum is None or the_constant(program.values.of(momentum, call.scope)) == 0
            if call.last != "SGD" or not plain:
                return call.last, True
            found = call.last
    return found, False


def _unread(program: Program, snapshot: Snapshot, reads: Collection[str]) -> str:
    """The key of an optimizer's state that is saved and certainly never loaded."""
    given = [call.argument("state_dict", 0) for call in program.methods("load_state_dict")]
    plain = [isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Constant) for one in given]
    if not all(plain) or not given or program.methods("set_optimizer_state_dict", "set_state_dict"):
        return ""
    for entry in snapshot.entries:
        asked = program.values.call(entry.value)
        if asked is None or asked.last != "state_dict" or entry.key in reads:
            continue
        if is_optimizer(program, asked.base, entry.scope):
            nodes = (node for module in program.modules for node in ast.walk(module.tree))
            named = [node for node in nodes if isinstance(node, ast.Constant) and node.value == entry.key]
            if len(named) <= len([e for e in snapshot.entries if e.key == entry.key]):
                return entry.key
    return ""


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
