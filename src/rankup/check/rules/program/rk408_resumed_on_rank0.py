"""Rank 0 alone reads the snapshot, and all ranks train on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.module import Call, Scope, identifiers, place
from rankup.check.facts.program.names import is_collective
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.reaching import reaching
from rankup.check.facts.program.value import Kind, objects
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import make_optimizers
from rankup.findings.finding import Confidence, Severity

_READS = frozenset({"torch.load", "safetensors.torch.load_file"})


def find(program: Program) -> Iterator[Match]:
    if not program.inits or program.frameworks:
        return
    scopes = {loop.scope: loop.scope for loop in program.data.loops}
    scopes |= {call.scope: call.scope for call in program.methods("step", "backward")}
    scopes |= {site.call.scope: site.call.scope for sites in program.graph.sites.values() for site in sites}
    for scope in scopes:
        for loop in _training_loops(program, scope):
            yield from _first_epochs(program, loop, scope)
            yield from _optimizers(program, loop, scope)


def _training_loops(program: Program, scope: Scope) -> list[ast.For]:
    """The outermost loops that all ranks run, and in which something calls backward()."""
    found: dict[ast.For, None] = {}
    for call in scope.calls:
        inside = [
            scope for target in program.graph.called.get(call, ()) for scope in program.graph.reached(target)
        ]
        if call.last != "backward" and not any(one.last == "backward" for s in inside for one in s.calls):
            continue
        around = [
            holder
            for holder, part in scope.module.ancestors(call.node)
            if isinstance(holder, ast.For) and part == "body"
        ]
        if around and not program.guards.limited(around[-1], scope):
            found[around[-1]] = None
    return list(found)


def _on_rank_0(program: Program, node: ast.AST, scope: Scope) -> bool:
    """Whether a statement runs where ``rank == 0`` holds for sure, and for nothing else than the rank of this run."""
    return any(
        guard.test.sure and guard.only_first and guard.test.of is Kind.RANK and not guard.early
        for guard in program.guards.of(node, scope)
    )


def _reads(program: Program, node: ast.AST, scope: Scope) -> bool:
    """Whether a value comes from a file of torch: read here, or by a function of the program."""
    for part in ast.walk(node):
        call = program.values.call(part) if isinstance(part, ast.Call) else None
        made = [call] if call is not None else []
        if isinstance(part, ast.Name):
            made = objects(program.values.of(part, scope))
        for one in made:
            targets = program.graph.called.get(one, ())
            inside = [c for target in targets for s in program.graph.reached(target) for c in s.calls]
            if any(c.name in _READS for c in [one, *inside]):
                return True
    return False


def _first_epochs(program: Program, loop: ast.For, scope: Scope) -> Iterator[Match]:
    """``if rank == 0: start = torch.load(…)["epoch"]``, and ``range(start, …)`` on all ranks."""
    if not isinstance(loop.iter, ast.Call) or len(loop.iter.args) < 2:
        return
    first = loop.iter.args[0]
    if not isinstance(first, ast.Name) or ast.unparse(loop.iter.func) not in {
        "range",
        "trange",
        "tqdm.trange",
    }:
        return
    definitions, _ = reaching(list(scope.definitions.get(first.id, ())), first, scope.module)
    for definition in definitions:
        value = definition.value
        if (
            value is None
            or not _on_rank_0(program, definition.at, scope)
            or not _reads(program, value, scope)
        ):
            continue
        others = [other for other in definitions if other is not definition and not _constant(other.value)]
        if others or _told(program, first.id, definition.at, loop, scope):
            continue
        yield Match(
            scope.module.document,
            scope.module.span(scope.module.statement(definition.at)),
            f"Rank 0 alone reads {first.id} from the snapshot, and range({first.id}, …) at line {loop.lineno} runs on "
            "all ranks.",
        )


def _constant(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def _told(program: Program, name: str, since: ast.AST, loop: ast.For, scope: Scope) -> bool:
    """Whether a call between the two gets the variable, and may tell it to the others, or ends them."""
    for call in scope.calls:
        if not place(since) < place(call.node) < place(loop):
            continue
        given = [*call.node.args, *(keyword.value for keyword in call.node.keywords)]
        if call.last not in {"print", "info", "range", "format"} and any(
            name in identifiers(one) for one in given
        ):
            return True
        if is_collective(call.name) and call.last not in {"barrier", "monitored_barrier"}:
            return True  # perhaps in a list that was made of it
    return False


def _optimizers(program: Program, loop: ast.For, scope: Scope) -> Iterator[Match]:
    """``if rank == 0: optimizer.load_state_dict(…)``: nothing gives that state to the others."""
    for call in scope.calls:
        if call.last != "load_state_dict" or call.base is None or place(call.node) > place(loop):
            continue
        if not make_optimizers(objects(program.values.of(call.base, scope))):
            continue
        state = call.argument("state_dict", 0)
        if state is None or not _on_rank_0(program, call.node, scope) or not _reads(program, state, scope):
            continue
        text = ast.unparse(call.base)
        if _loaded_elsewhere(program, call) or _told(
            program, text.rpartition(".")[2], call.node, loop, scope
        ):
            continue
        yield Match(
            call.module.document,
            call.span,
            f"Rank 0 alone loads the state of {text}, and all ranks step with it in the loop at line {loop.lineno}.",
        )


def _loaded_elsewhere(program: Program, call: Call) -> bool:
    """Whether the others load their state by another call, or get it by a collective that nobody can follow."""
    text = ast.unparse(call.base or call.node)
    others = (other for other in program.methods("load_state_dict") if other is not call)
    sent = (name for other in program.collectives for one in other.node.args for name in identifiers(one))
    return any(other.base is not None and ast.unparse(other.base) == text for other in others) or any(
        "state" in name for name in sent
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
