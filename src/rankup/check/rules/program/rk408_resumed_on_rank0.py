"""Rank 0 alone reads the snapshot, and all ranks train on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.flow import loops_around
from rankup.check.facts.program.module import Scope, identifiers, last_name, place, same
from rankup.check.facts.program.names import is_collective
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.reaching import reaching
from rankup.check.facts.program.value import Kind
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import is_optimizer, match
from rankup.findings.finding import Confidence, Severity

_READS = frozenset({"torch.load", "safetensors.torch.load_file"})


def find(program: Program) -> Iterator[Match]:
    if not program.distributed:
        return
    loops: dict[ast.AST, Scope] = {}
    for call in program.calls:
        around = loops_around(call) if program.trains(call) else []
        if around and isinstance(around[-1], ast.For) and not program.guards.limited(around[-1], call.scope):
            loops[around[-1]] = call.scope
    for loop, scope in loops.items():
        if isinstance(loop, ast.For):
            yield from _first_epochs(program, loop, scope)
            yield from _optimizers(program, loop, scope)


def _on_rank_0(program: Program, node: ast.AST, scope: Scope) -> bool:
    """Whether a statement runs where ``rank == 0`` holds for sure, and for nothing else than the rank of this run."""
    guards = program.guards.of(node, scope)
    return any(one.sure_first and one.test.of is Kind.RANK and not one.early for one in guards)


def _reads(program: Program, node: ast.AST, scope: Scope) -> bool:
    """Whether a value comes from a file of torch: read here, or by a function of the program."""
    made = [call for part in ast.walk(node) if (call := program.values.call(part)) is not None]
    names = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
    made += [call for name in names for call in program.made(name, scope)]
    return any(one.name in _READS for call in made for one in program.within(call))


def _first_epochs(program: Program, loop: ast.For, scope: Scope) -> Iterator[Match]:
    """``if rank == 0: start = torch.load(…)["epoch"]``, and ``range(start, …)`` on all ranks."""
    if not isinstance(loop.iter, ast.Call) or last_name(loop.iter) not in {"range", "trange"}:
        return
    first = loop.iter.args[0] if len(loop.iter.args) > 1 else None
    if not isinstance(first, ast.Name):
        return
    definitions, _ = reaching(list(scope.definitions.get(first.id, ())), first, scope.module)
    for definition in definitions:
        value, at = definition.value, definition.at
        if value is None or not _on_rank_0(program, at, scope) or not _reads(program, value, scope):
            continue
        others = [other.value for other in definitions if other is not definition]
        constant = [isinstance(one, ast.Constant) and isinstance(one.value, int) for one in others]
        if all(constant) and not _told(first.id, at, loop, scope):
            yield match(
                scope.module,
                scope.module.statement(at),
                f"Rank 0 alone reads {first.id} from the snapshot, and range({first.id}, …) at "
                f"{scope.module.line(loop.lineno)} runs on all ranks.",
            )


def _told(name: str, since: ast.AST, loop: ast.For, scope: Scope) -> bool:
    """Whether a call between the two gets the variable, and may tell it to the others, or ends them."""
    for call in scope.calls:
        if place(since) < place(call.node) < place(loop):
            shown = call.last in {"print", "info", "range", "format"}
            if not shown and any(name in identifiers(one) for one in call.given):
                return True
            if is_collective(call.name) and "barrier" not in call.last:
                return True  # perhaps in a list that was made of it
    return False


def _optimizers(program: Program, loop: ast.For, scope: Scope) -> Iterator[Match]:
    """``if rank == 0: optimizer.load_state_dict(…)``: nothing gives that state to the others."""
    all_loads = program.methods("load_state_dict")
    sent = {name for call in program.collectives for one in call.node.args for name in identifiers(one)}
    for call in all_loads if not any("state" in name for name in sent) else ():
        state, base = call.argument("state_dict", 0), call.base
        if call.scope is not scope or base is None or state is None or place(call.node) > place(loop):
            continue
        elsewhere = [other for other in all_loads if other is not call and same(other.base, base)]
        if (
            is_optimizer(program, base, scope)
            and _on_rank_0(program, call.node, scope)
            and _reads(program, state, scope)
            and not elsewhere
            and not _told(last_name(base), call.node, loop, scope)
        ):
            yield match(
                call.module,
                call.node,
                f"Rank 0 alone loads the state of {ast.unparse(base)}, and all ranks step with it in the loop at "
                f"{call.module.line(loop.lineno)}.",
            )


_HEAD = """import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
net = torch.nn.Linear(2, 2)
optimizer = torch.optim.Adam(net.parameters())
start = 0
"""
_LOOP = """for epoch in range(start, 10):
    for x in torch.randn(8, 4, 2):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""

RULE = Rule(
    code="RK408",
    name="resumed-on-rank0",
    severity=Severity.ERROR,
    confidence=Confidence.LIKELY,
    what="Rank 0 alone reads the first epoch, or the optimizer's state, from the snapshot.",
    why="DistributedDataParallel sends the weights of rank 0 to the others, and nothing else. Ranks that start with "
    "other epochs make other numbers of steps, and hang or fail. With other states of the optimizer each step makes "
    "the models differ more, without a message (measured with torch 2.13).",
    fix="Load the snapshot on all ranks (with map_location), or send what rank 0 read by dist.broadcast_object_list.",
    find=find,
    fires=(
        _HEAD
        + """if rank == 0 and os.path.exists("last.pt"):
    state = torch.load("last.pt", map_location="cpu")
    net.load_state_dict(state["model"])
    start = state["epoch"] + 1
model = DDP(net)
"""
        + _LOOP,
        _HEAD
        + """if rank == 0:
    state = torch.load("last.pt", map_location="cpu")
    net.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
model = DDP(net)
"""
        + _LOOP,
    ),
    silent=(
        _HEAD
        + """model = DDP(net)
"""
        + _LOOP
        + """if rank == 0:
    optimizer.load_state_dict(torch.load("best.pt"))
    start = torch.load("best.pt")["epoch"]
    print(start, optimizer)
""",
        _HEAD
        + """model = net if dist.get_world_size() == 1 else DDP(net)
if dist.get_world_size() == 1 or rank == 0:
    start = torch.load("last.pt")["epoch"]
start = share(start)
"""
        + _LOOP,
    ),
)
