"""A run that goes on from the snapshot of another run."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.flow import tests_around
from rankup.check.facts.program.module import Call, last_name
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import the_constant
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import loads, match, saves
from rankup.findings.finding import Confidence, Severity

_ASKS = ("exists", "isfile", "is_file", "path_exists")


def find(program: Program) -> Iterator[Match]:
    saved = {the_constant(program.values.of(path, call.scope)) for call, path in saves(program)}
    for call in loads(program) if saved else ():
        path = the_constant(program.value(call, "f", 0))
        if isinstance(path, str) and path in saved and _if_it_is_there(program, call):
            yield match(
                call.module, call.node, f"Each run goes on from {path!r}, also if another one has written it."
            )


def _if_it_is_there(program: Program, call: Call, depth: int = 2) -> bool:
    """Whether a call runs just because the file exists, here or where its function is called."""
    tests = tests_around(call.module, call.node)
    if any(
        isinstance(node, ast.Call) and last_name(node) in _ASKS for test in tests for node in ast.walk(test)
    ):
        return not any(_is_option(node) for test in tests for node in ast.walk(test))
    sites = program.graph.sites.get(call.scope, [])
    return bool(sites) and depth > 0 and all(_if_it_is_there(program, site.call, depth - 1) for site in sites)


def _is_option(node: ast.AST) -> bool:
    """``args.resume and os.path.exists(path)``: somebody asks for it."""
    return isinstance(node, ast.Attribute) and "resume" in node.attr


RULE = Rule(
    code="RK410",
    name="stale-snapshot",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="A program resumes from a fixed file whenever that exists.",
    why="A second experiment in the same folder starts with the weights, and at the epoch, of the first: it may end at "
    "once, or show a result that is not its own.",
    fix="Name the file after the run (a job's number stays the same in a requeue), or resume only by an option.",
    find=find,
    fires=(
        """import os
import torch

def main(model):
    if os.path.exists("snapshot.pt"):
        model.load_state_dict(torch.load("snapshot.pt", map_location="cpu"))
    torch.save(model.state_dict(), "snapshot.pt")
""",
        """import os
import torch

class Trainer:
    def __init__(self, model, path):
        self.model, self.path = model, path
        if os.path.exists(path):
            self.load(path)

    def load(self, path):
        self.model.load_state_dict(torch.load(path, map_location="cpu"))

    def save(self):
        torch.save(self.model.state_dict(), self.path)

def main(model, path="snapshot.pt"):
    Trainer(model, path).save()

main(torch.nn.Linear(2, 2))
""",
    ),
    silent=(
        """import argparse
import os
import torch

def main(model):
    parser = argparse.ArgumentParser()
    parser.add_argument("--snapshot")
    path = parser.parse_args().snapshot
    if os.path.exists(path):
        model.load_state_dict(torch.load(path, map_location="cpu"))
    torch.save(model.state_dict(), path)
""",
        """import os
import torch

def main(model, args):
    if args.resume and os.path.exists("snapshot.pt"):
        model.load_state_dict(torch.load("snapshot.pt", map_location="cpu"))
    torch.save(model.state_dict(), "snapshot.pt")
""",
    ),
)
