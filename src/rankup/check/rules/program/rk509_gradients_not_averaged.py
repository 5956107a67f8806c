"""Ranks train, and nothing averages their gradients: no model is wrapped, or the training goes past the wrapped one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.flow import WITHS, holders
from rankup.check.facts.program.frameworks import Does
from rankup.check.facts.program.module import Call, last_name, torch_last
from rankup.check.facts.program.names import words
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import objects
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity

#: Any of these may synchronise gradients, or split the model.
_SYNCHRONISES = words(
    """
    all_reduce all_reduce_coalesced reduce all_gather all_gather_into_tensor reduce_scatter reduce_scatter_tensor send
    recv isend irecv batch_isend_irecv broadcast all_to_all parallelize_module distribute_tensor distribute_module
    replicate init_device_mesh DeviceMesh rpc_sync rpc_async remote init_rpc PipelineStage pipeline
    ZeroRedundancyOptimizer register_comm_hook average_parameters DistributedOptimizer wrap auto_wrap
    functional_all_reduce
    """
)
# What may be asked of a wrapped model that is never called.
_HARMLESS = words(
    """
    module parameters named_parameters buffers modules children state_dict load_state_dict train eval no_sync zero_grad
    to cuda requires_grad_ device training
    """
)


def find(program: Program) -> Iterator[Match]:
    if not program.whole or program.gets(Does.WRAP, Does.SPLIT):
        return
    if not program.wraps:
        yield from _unwrapped(program)
        return
    by_ddp = all(torch_last(call) == "DistributedDataParallel" for call in program.wraps)
    if by_ddp and not _averages_itself(program):
        yield from _never_synchronised(program)
        for wrap in program.wraps:
            if not _forwarded(program, wrap):
                yield from _bypassed(program, wrap)


def _unwrapped(program: Program) -> Iterator[Match]:
    """A process group and a training, and no word of an average."""
    if program.methods(*_SYNCHRONISES) or not program.methods("backward"):
        return
    if program.named("torch.nn.DataParallel", "torch.nn.parallel.DataParallel"):
        return
    foreign = [full for module in program.modules for full in module.imports.values()]
    if any("parallel" in name.lower() and not name.startswith(("torch.nn", ".")) for name in foreign):
        return
    for call in program.inits[:1] if any(loop.trains for loop in program.data.loops) else ():
        yield match(
            call.module,
            call.node,
            "The ranks form a group and train, but no model is wrapped and no gradient is reduced.",
            severity=Severity.WARNING,
            fix="Wrap the model in DistributedDataParallel, or shard it with fully_shard.",
        )


def _averages_itself(program: Program) -> bool:
    """Whether the program touches gradients, or averages weights instead."""
    if program.methods("average_parameters", "register_comm_hook") or program.named("torch.autograd.grad"):
        return True
    nodes = (node for module in program.modules for node in module.of(ast.Attribute))
    return any(last_name(node) in {"grad", "require_backward_grad_sync"} for node in nodes)


def _never_synchronised(program: Program) -> Iterator[Match]:
    """Every backward pass of the program is inside ``with ddp.no_sync():``."""
    inside = [_no_sync(program, call) for call in program.methods("backward")]
    call = inside[0] if inside and all(inside) else None
    if call is not None:
        message = "Every backward() of the program runs inside no_sync(): no gradient is ever averaged."
        yield match(call.module, call.node, message)


def _no_sync(program: Program, backward: Call) -> Call | None:
    for holder in holders(backward.module, backward.node, *WITHS, parts=("body",)):
        for item in getattr(holder, "items", ()):
            call = program.values.call(item.context_expr)
            if call is not None and call.last == "no_sync":
                made = program.made(call.base, call.scope)
                if made and all(one in program.wraps for one in made):
                    return call
    return None


def _forwarded(program: Program, wrap: Call) -> bool:
    """Whether the wrapped model is called, or may be: it is given to, or kept by, something unknown."""
    holder = wrap.module.parents[wrap.node][0]
    if not isinstance(holder, ast.Assign) or len(holder.targets) != 1:
        return True
    target = last_name(holder.targets[0])
    for module in program.modules:
        for node, (user, _) in module.parents.items():
            loads = isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load)
            if not loads or last_name(node) != target:
                continue
            made = program.made(node, module.scope_of(node))
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
        if not call.name and wrap in program.made(call.node.func, call.scope):
            return True
        holds = any(wrap in program.made(one, call.scope) for one in call.given)
        if holds and not program.graph.called.get(call):
            return True
    return False


def _bypassed(program: Program, wrap: Call) -> Iterator[Match]:
    inner = objects(program.value(wrap, "module", 0))
    for loop in program.data.loops:
        scopes = {call.scope for call in loop.calls if call.last == "backward"}
        for call in loop.calls if loop.trains else ():
            if call.name or call.scope not in scopes:
                continue
            made = program.made(call.node.func, call.scope)
            unwrapped = call.last == "module" and program.made(call.base, call.scope) == [wrap]
            if unwrapped or (made and all(one in inner for one in made)):
                yield match(
                    call.module,
                    call.node,
                    f"{call.text}(…) goes past DistributedDataParallel, and the wrapped model is never called: no "
                    "gradient is averaged.",
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
    what="Ranks train and no model is wrapped, or training goes past the model in DistributedDataParallel, or never "
    "leaves no_sync().",
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
