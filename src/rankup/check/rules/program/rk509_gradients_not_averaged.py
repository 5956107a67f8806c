"""A model is wrapped in DDP, and no backward pass goes through it in a way that averages gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.module import Call, torch_last
from rankup.check.facts.program.names import words
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import objects
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

# What may be asked of a wrapped model that is never called.
_HARMLESS = words(
    """
    module parameters named_parameters buffers modules children state_dict load_state_dict train eval no_sync zero_grad
    to cuda requires_grad_ device training
    """
)


def find(program: Program) -> Iterator[Match]:
    wraps = [call for call in program.wraps if torch_last(call) == "DistributedDataParallel"]
    if not wraps or len(wraps) != len(program.wraps) or not program.whole or program.frameworks:
        return
    if _averages_itself(program):
        return
    yield from _never_synchronised(program, wraps)
    for wrap in wraps:
        if not _forwarded(program, wrap):
            yield from _bypassed(program, wrap)


def _averages_itself(program: Program) -> bool:
    """Whether the program touches gradients, or averages weights instead."""
    if program.methods("average_parameters", "register_comm_hook") or program.named("torch.autograd.grad"):
        return True
    return any(
        isinstance(node, ast.Attribute) and node.attr in {"grad", "require_backward_grad_sync"}
        for module in program.modules
        for node in ast.walk(module.tree)
    )


def _never_synchronised(program: Program, wraps: list[Call]) -> Iterator[Match]:
    """Every backward pass of the program is inside ``with ddp.no_sync():``."""
    inside = [_no_sync(program, call, wraps) for call in program.methods("backward")]
    if inside and all(inside) and inside[0] is not None:
        call = inside[0]
        yield Match(
            call.module.document,
            call.span,
            "Every backward() of the program runs inside no_sync(): no gradient is ever averaged.",
        )


def _no_sync(program: Program, backward: Call, wraps: list[Call]) -> Call | None:
    for holder, part in backward.module.ancestors(backward.node):
        if part != "body" or not isinstance(holder, (ast.With, ast.AsyncWith)):
            continue
        for item in holder.items:
            call = program.values.call(item.context_expr)
            if call is not None and call.last == "no_sync" and call.base is not None:
                made = objects(program.values.of(call.base, call.scope))
                if made and all(one in wraps for one in made):
                    return call
    return None


def _forwarded(program: Program, wrap: Call) -> bool:
    """Whether the wrapped model is called, or may be: it is given to, or kept by, something unknown."""
    holder = wrap.module.parents[wrap.node][0]
    if not isinstance(holder, ast.Assign) or len(holder.targets) != 1:
        return True
    target = ast.unparse(holder.targets[0]).rpartition(".")[2]
    for module in program.modules:
        for node in ast.walk(module.tree):
            name = getattr(node, "attr", "") if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            if name != target or not isinstance(getattr(node, "ctx", None), ast.Load):
                continue
            made = objects(program.values.of(node, module.scope_of(node)))
            user = module.parents[node][0] if node in module.parents else None
            if made and wrap not in made:
                continue  # something else of the same name
            if isinstance(user, ast.Attribute):
                used = user.attr not in _HARMLESS
            elif isinstance(user, ast.Call):  # a parameter is what the calls pass: see below
                used = node is user.func and (bool(made) or isinstance(node, ast.Attribute))
            else:
                used = True
            if used:
                return True
    for call in program.calls:
        if not call.name and wrap in objects(program.values.of(call.node.func, call.scope)):
            return True
        given = [*call.node.args, *(keyword.value for keyword in call.node.keywords)]
        holds = any(wrap in objects(program.values.of(one, call.scope)) for one in given)
        if holds and not program.graph.called.get(call):
            return True
    return False


def _bypassed(program: Program, wrap: Call) -> Iterator[Match]:
    inner = objects(program.value(wrap, "module", 0))
    for loop in program.data.loops:
        if not loop.trains or not any(call.last == "backward" for call in loop.calls):
            continue
        for call in loop.calls:
            function = call.node.func
            if call.name or not any(c.last == "backward" and c.scope is call.scope for c in loop.calls):
                continue
            made = objects(program.values.of(function, call.scope))
            around = isinstance(function, ast.Attribute) and function.attr == "module"
            unwrapped = around and objects(program.values.of(call.base, call.scope)) == [wrap]
            if unwrapped or (made and all(one in inner for one in made)):
                yield Match(
                    call.module.document,
                    call.span,
                    f"{ast.unparse(function)}(…) goes past DistributedDataParallel, and the wrapped model is never "
                    "called: no gradient is averaged.",
                )
                return


_HEAD = """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(loader):
    dist.init_process_group("gloo")
    net = torch.nn.Linear(2, 2)
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
"""
_END = """        optimizer.step()
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "model.pt")

main([])
"""

RULE = Rule(
    code="RK509",
    name="gradients-not-averaged",
    severity=Severity.ERROR,
    confidence=Confidence.LIKELY,
    what="A model is wrapped in DistributedDataParallel, and training goes past it, or never leaves no_sync().",
    why="DDP averages gradients in the backward pass of its own forward call. Past it each rank trains a model of its "
    "own on its part of the data, without a message; the saved model is that of one rank.",
    fix="Call the wrapped model, and leave no_sync() for the last backward() before each optimizer.step().",
    find=find,
    fires=(
        _HEAD + "        model.module(x).sum().backward()\n" + _END,
        _HEAD + "        net(x).sum().backward()\n" + _END,
    ),
    silent=(
        _HEAD + "        model(x).sum().backward()\n" + _END,
        _HEAD + "        (model(x).sum() + net(x).detach().sum()).backward()\n" + _END,
    ),
)
