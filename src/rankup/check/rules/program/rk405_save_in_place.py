"""A snapshot is written over the last good one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.module import same
from rankup.check.facts.program.names import words
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.snapshots import snapshots
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import loads, match, written
from rankup.findings.finding import Confidence, Severity

_RENAMES = words("rename replace move copyfile copy link symlink")


def find(program: Program) -> Iterator[Match]:
    for snapshot in snapshots(program) if not program.methods(*_RENAMES) else ():
        call = snapshot.call
        path = call.argument("f", 1) if call.name == "torch.save" else None
        wanted = written(path, call.scope)
        loaded = any(same(wanted, written(load.argument("f", 0), load.scope)) for load in loads(program))
        if path is not None and loaded and snapshot.has("epoch", "step", "optim"):
            yield match(
                call.module, call.node, f"{ast.unparse(path)} is overwritten in place, and resumed from."
            )


RULE = Rule(
    code="RK405",
    name="save-in-place",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="A snapshot that a run resumes from is overwritten in place.",
    why="A job that is stopped while it writes leaves half a file, and the last good snapshot is gone.",
    fix="Write to another name and then os.replace() it.",
    find=find,
    fires=(
        """import torch

PATH = "last.pt"

def save(model, epoch):
    torch.save({"model": model.state_dict(), "epoch": epoch}, PATH)

def load(model):
    model.load_state_dict(torch.load(PATH)["model"])
""",
        """import torch

class Trainer:
    def save(self, epoch):
        snapshot = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(snapshot, self.path)

    def load(self):
        return torch.load(self.path, map_location="cpu")
""",
    ),
    silent=(
        """import os
import torch

PATH = "last.pt"

def save(model, epoch):
    torch.save({"model": model.state_dict(), "epoch": epoch}, PATH + ".tmp")
    os.replace(PATH + ".tmp", PATH)

def load(model):
    model.load_state_dict(torch.load(PATH)["model"])
""",
        """import torch

def save(model, epoch):
    torch.save({"model": model.state_dict(), "epoch": epoch}, f"epoch-{epoch}.pt")
""",
    ),
)
