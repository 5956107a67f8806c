"""The state of the wrapper is saved in place of the model's."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sharding import parts
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity

_WRAPPERS = ("DistributedDataParallel", "DataParallel")


def find(program: Program) -> Iterator[Match]:
    wraps = program.named(*_WRAPPERS)
    if not wraps or program.methods("load_state_dict") or _knows_the_prefix(program):
        return  # what is loaded by the same program may well have the prefix
    for save in program.named("torch.save"):
        obj = save.argument("obj", 0)
        for node, scope in parts(program, obj, save.scope, depth=2):
            call = program.values.call(node)
            if call is None or call.last != "state_dict" or call.base is None:
                continue
            made = program.made(call.base, scope)
            if made and all(one in wraps for one in made):
                end = call.module.span(call.base).end
                yield match(
                    call.module,
                    call.node,
                    f"The keys of {ast.unparse(call.base)} begin with 'module.', which the model's own do not.",
                    Edit(Span(end, end), ".module", call.module.document),
                )
                break


def _knows_the_prefix(program: Program) -> bool:
    return any("module." in module.texts for module in program.modules)


RULE = Rule(
    code="RK409",
    name="wrapped-state",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="The state_dict() of a model that DistributedDataParallel wraps is saved, and nothing here loads it.",
    why="A model without the wrapper does not load it: 'Missing key(s) in state_dict', or with strict=False none of "
    "its weights.",
    fix="Save model.module.state_dict().",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """import torch
from torch.nn.parallel import DistributedDataParallel

def main(rank):
    model = DistributedDataParallel(torch.nn.Linear(2, 2).to(rank))
    if rank == 0:
        torch.save(model.state_dict(), "model.pt")
""",
        """import torch

def main(path):
    net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
    torch.save({"net": net.state_dict(), "epoch": 3}, path)
""",
    ),
    silent=(
        """import torch
from torch.nn.parallel import DistributedDataParallel

def main(rank):
    model = DistributedDataParallel(torch.nn.Linear(2, 2).to(rank))
    torch.save(model.module.state_dict(), "model.pt")
""",
        """import torch
from torch.nn.parallel import DistributedDataParallel

def main(rank, resume):
    model = DistributedDataParallel(torch.nn.Linear(2, 2).to(rank))
    if resume:
        model.load_state_dict(torch.load("model.pt", map_location="cpu"))
    torch.save(model.state_dict(), "model.pt")
""",
    ),
)
