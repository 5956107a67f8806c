"""torch.load without map_location on every rank."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.flow import BRANCHES, holders
from rankup.check.facts.program.module import Call, identifiers, last_name, same
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import the_constant
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import argument_added, replaced
from rankup.check.rules.queries import loads, match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if not program.distributed or (program.starts and not program.many_ranks):
        return
    nccl = ["nccl" in str(the_constant(program.value(call, "backend", 0))) for call in program.inits]
    if not any(nccl) and not program.named("torch.cuda.set_device") and not program.methods("cuda"):
        return
    for call in loads(program):
        where = call.argument("map_location", 1)
        given = program.values.of(where, call.scope)
        if where is not None and the_constant(given) != "cuda:0" and ast.unparse(where) != "None":
            continue
        if call.spread or program.guards.limited(call.node, call.scope) or not program.on_all_ranks(call):
            continue
        if _is_state(call) and not _other_branch(program, call):
            message = (
                "torch.load() without map_location: tensors saved from cuda:0 go to cuda:0 on every rank."
            )
            edit: Edit = argument_added(call, 'map_location="cpu"')
            if where is not None:
                message = "torch.load() puts its tensors on cuda:0 on every rank."
                edit = replaced(call.module, where, '"cpu"')
            yield match(call.module, call.node, message, edit)


def _other_branch(program: Program, call: Call) -> bool:
    """Whether the other branch of a condition loads with map_location: this one is for a single process."""
    around = set(holders(call.module, call.node, *BRANCHES))
    return any(
        other is not call and other.argument("map_location", 1) is not None
        for other in loads(program)
        if around & set(holders(other.module, other.node, *BRANCHES))
    )


def _is_state(call: Call) -> bool:
    """Whether what is loaded becomes the state of a model or an optimizer."""
    if any(last_name(one) == "load_state_dict" for one in holders(call.module, call.node, ast.Call)):
        return True
    statement = call.module.statement(call.node)
    if isinstance(statement, ast.Return):
        return "ch" in call.scope.name and "point" in call.scope.name
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return any(
        same(target, one) or (isinstance(target, ast.Name) and target.id in identifiers(one))
        for other in call.scope.calls
        if other.last == "load_state_dict"
        for one in other.node.args
        for target in targets
    )


RULE = Rule(
    code="RK402",
    name="no-map-location",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A distributed program loads a saved state without map_location.",
    why="Tensors return to the device that they were saved from. If that is cuda:0, each rank of a node takes memory "
    "on the first GPU, up to 'out of memory' (pytorch#23138).",
    fix='Pass map_location="cpu"; load_state_dict copies to the right device.',
    find=find,
    safety=Safety.SAFE,
    fires=(
        """import torch
import torch.distributed as dist

def resume(model, path):
    dist.init_process_group("nccl")
    checkpoint = torch.load(path, map_location="cuda:0")
    model.load_state_dict(checkpoint["model"])
""",
        """import torch
import torch.distributed as dist

def resume(model, path):
    dist.init_process_group("nccl")
    checkpoint = torch.load(path)
    model.load_state_dict(checkpoint["model"])
""",
    ),
    silent=(
        """import torch
import torch.distributed as dist

dist.init_process_group("nccl")
images = torch.load("images.pt")
print(images.shape)
""",
        """import torch

model = torch.nn.Linear(2, 2)
model.load_state_dict(torch.load("model.pt"))
""",
    ),
)
