"""A rank leaves the training at its own signal, by its own loss, or alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.flow import LOOPS, holders, loops_around
from rankup.check.facts.program.frameworks import Does
from rankup.check.facts.program.guards import leaves
from rankup.check.facts.program.module import Module, identifiers, last_name
from rankup.check.facts.program.names import words
from rankup.check.facts.program.program import Program
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity

_READS = words("item detach cpu")
_OF_ONE_RANK = words("print float append isnan isfinite add_scalar info log")


def find(program: Program) -> Iterator[Match]:
    if not program.whole or program.gets(Does.LOOP) or not program.averages:
        return
    training = {loop for call in program.methods("backward") for loop in loops_around(call)}
    flags = _flags(program)
    for module in program.modules:
        for node in module.of(ast.If):
            loops = holders(module, node, *LOOPS)
            if not loops:
                continue
            if isinstance(node.body[-1], ast.Break) and loops[0] in training:
                yield from _by_one_rank(program, module, node)
                yield from _by_own_loss(program, module, node, loops[0])
            trains = {loop.node for loop in program.data.loops if loop.trains} | training
            flag = _asked(node.test, flags)
            if flag and leaves(node.body) and trains & set(loops):
                yield match(
                    module,
                    node.test,
                    f"Each rank leaves the loop when its own signal has set {flag}, and may be at another step.",
                )


def _by_one_rank(program: Program, module: Module, node: ast.If) -> Iterator[Match]:
    """``if rank == 0 and …: break`` in a training loop."""
    test = program.rank_test(node.test, module.scope_of(node))
    if test is not None and test.sure and test.first and not test.either:
        why = "The others go on, and wait in the next all-reduce until the timeout."
        yield match(module, node.test, "One rank alone leaves the training loop.", why=why)


def _by_own_loss(program: Program, module: Module, node: ast.If, loop: ast.AST) -> Iterator[Match]:
    """``if loss.item() < 0.1: break``, where the loss is of this rank's batch: it has a backward in the same loop, and
    goes into nothing that the ranks may share."""
    if program.guards.limited(node, module.scope_of(node)):
        return
    for name in [one for one in sorted(_compared(node.test)) if _is_own_loss(program, module, loop, one)][:1]:
        yield match(
            module,
            node.test,
            f"Each rank leaves the loop by {name} of its own batch, and not when the others do.",
            why="The ranks have other samples, and other losses. One of them leaves first, and the others wait in the "
            "next all-reduce until the timeout.",
            fix=f"Share it first: value = {name}.detach().clone(); dist.all_reduce(value), and decide by the value.",
        )


def _compared(test: ast.expr) -> set[str]:
    """The names that a condition compares: ``loss``, ``loss.item()``, ``float(loss)``."""
    if isinstance(test, ast.BoolOp):
        return set().union(*map(_compared, test.values))
    sides = (test.left, *test.comparators) if isinstance(test, ast.Compare) else ()
    return {_number(side) for side in sides} - {""}


def _number(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in _READS:
            return _number(node.func.value)
        if last_name(node) == "float" and len(node.args) == 1:
            return _number(node.args[0])
    return node.id if isinstance(node, ast.Name) else ""


def _is_own_loss(program: Program, module: Module, loop: ast.AST, name: str) -> bool:
    inside = set(ast.walk(loop))
    backward = False
    for call in module.calls:
        if call.base is not None and last_name(call.base) == name:
            if call.last == "backward":
                backward |= call.node in inside
            elif call.last not in _READS:
                return False
        if call.last not in _OF_ONE_RANK and any(name in identifiers(argument) for argument in call.given):
            return False  # a function may reduce it
    bound = [n for n in inside if isinstance(n, ast.Assign) and name in map(last_name, n.targets)]
    return backward and len(bound) == 1


def _flags(program: Program) -> set[str]:
    """The names that handlers of signals set to True, if nothing of them goes into what the ranks may share."""
    found: set[str] = set()
    for call in program.named("signal.signal"):
        handler = call.argument("handler", 1)
        for function in program.graph.functions(handler, call.scope) if handler is not None else ():
            for node in ast.walk(function.node):
                if (
                    isinstance(node, ast.Assign)
                    and isinstance(node.value, ast.Constant)
                    and node.value.value is True
                ):
                    found |= {last_name(target) for target in node.targets}
    found -= {""}
    return set() if found and _shared(program, found) else found


def _shared(program: Program, flags: set[str]) -> bool:
    """Whether a flag is an argument of a call, or assigned from something."""
    for call in program.calls:
        given = [one for one in call.given if not isinstance(one, ast.JoinedStr)]
        if call.name != "signal.signal" and any(flags & identifiers(argument) for argument in given):
            return True
    assigned = (node for module in program.modules for node in module.of(ast.Assign))
    return any(
        flags & set(map(last_name, node.targets)) and not isinstance(node.value, ast.Constant)
        for node in assigned
    )


def _asked(test: ast.expr, flags: set[str]) -> str:
    """The flag that a condition asks by itself: ``if stop:``, ``if self.stop and …:``."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    plain = [part for part in parts if isinstance(part, (ast.Name, ast.Attribute))]
    return next((ast.unparse(part) for part in plain if last_name(part) in flags), "")


_HEAD = """import signal
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

stop = False

def on_signal(number, frame):
    global stop
    stop = True

signal.signal(signal.SIGUSR1, on_signal)
dist.init_process_group("nccl")
model = DDP(torch.nn.Linear(8, 2).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
_STEP = """for step in range(1000):
    model(torch.randn(4, 8, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

RULE = Rule(
    code="RK219",
    name="own-stop",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A rank leaves the training loop at its own signal, by its own loss, or alone, without asking the others.",
    why="The signal reaches the ranks at slightly different times: one of them may leave a step earlier, and the "
    "others wait in the next all-reduce until the timeout, in which no snapshot is written.",
    fix="Share the flag in each step or epoch: flag = torch.tensor(int(stop), device=device); dist.all_reduce(flag, "
    "op=dist.ReduceOp.MAX); leave if flag.item().",
    find=find,
    fires=(
        _HEAD
        + _STEP
        + "    if dist.get_rank() == 0 and step > 99:\n        break\ndist.destroy_process_group()\n",
        _HEAD + _STEP + "    if stop:\n        break\ndist.destroy_process_group()\n",
    ),
    silent=(
        _HEAD
        + _STEP
        + """    flag = torch.tensor(int(stop), device="cuda")
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    if flag.item():
        break
dist.destroy_process_group()
""",
        _HEAD + _STEP + "    if stop:\n        print('will stop soon')\ndist.destroy_process_group()\n",
    ),
)
