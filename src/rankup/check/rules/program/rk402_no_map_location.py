"""torch.load without map_location on every rank."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.module import Call, identifiers
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import Value, constants, the_constant
from rankup.check.rule import Match, Rule, Safety
from rankup.check.rules.edits import argument_added, replaced
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if program.frameworks or not program.inits or not _uses_cuda(program):
        return
    if program.starts and not program.many_ranks:
        return
    for call in program.named("torch.load"):
        given = program.value(call, "map_location", 1)
        where = call.argument("map_location", 1)
        if (
            (where is not None and not _is_first_device(given))
            or call.spread
            or program.guards.limited(call.node, call.scope)
        ):
            continue
        if not program.on_all_ranks(call) or not _is_state(call) or _other_branch(program, call):
            continue
        yield Match(
            call.module.document,
            call.span,
            "torch.load() puts its tensors on cuda:0 on every rank."
            if where is not None
            else "torch.load() without map_location: tensors saved from cuda:0 go to cuda:0 on every rank.",
            (replaced(call.module, where, '"cpu"'),)
            if where is not None
            else (argument_added(call, 'map_location="cpu"'),),
        )


def _is_first_device(given: Value) -> bool:
    """Whether ``map_location`` is None, or the first GPU for everybody."""
    found = constants(given)
    return len(given) == len(found) == 1 and found[0] in {None, "cuda:0"}


def _uses_cuda(program: Program) -> bool:
    if any("nccl" in str(the_constant(program.value(call, "backend", 0))) for call in program.inits):
        return True
    return bool(program.named("torch.cuda.set_device") or program.methods("cuda"))


def _other_branch(program: Program, call: Call) -> bool:
    """Whether the other branch of a condition loads with map_location: this one is for a single process."""
    around = {
        holder for holder, _ in call.module.ancestors(call.node) if isinstance(holder, (ast.If, ast.IfExp))
    }
    return any(
        other is not call and other.argument("map_location", 1) is not None and holder in around
        for other in program.named("torch.load")
        if other.module is call.module
        for holder, _ in other.module.ancestors(other.node)
    )


def _is_state(call: Call) -> bool:
    """Whether what is loaded becomes the state of a model or an optimizer."""
    for holder, _ in call.module.ancestors(call.node):
        if isinstance(holder, ast.Call) and ast.unparse(holder.func).endswith("load_state_dict"):
            return True
    statement = call.module.statement(call.node)
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return isinstance(statement, ast.Return) and "ch" in call.scope.name and "point" in call.scope.name
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    names = {ast.unparse(target) for target in targets}
    return any(
        other.last == "load_state_dict"
        and any(names & (identifiers(a) | {ast.unparse(a)}) for a in other.node.args)
        for other in call.scope.calls
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
