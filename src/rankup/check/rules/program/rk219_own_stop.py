"""A rank leaves the training at its own signal, by its own loss, or alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.guards import leaves
from rankup.check.facts.program.module import Call, Module, identifiers
from rankup.check.facts.program.program import Program
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if not program.whole or program.frameworks or not program.inits or not program.wraps:
        return
    yield from _by_one_rank(program)
    yield from _by_own_loss(program)
    flags = _flags(program)
    if not flags or _agreed(program, flags):
        return
    for module in program.modules:
        for node in module.of(ast.If):
            name = _asked(node, flags)
            if (
                name
                and isinstance(node, ast.If)
                and leaves(node.body)
                and _in_training(program, module, node)
            ):
                yield Match(
                    module.document,
                    module.span(node.test),
                    f"Each rank leaves the loop when its own signal has set {name}, and may be at another step.",
                )


def _by_one_rank(program: Program) -> Iterator[Match]:
    """``if rank == 0 and …: break`` in a training loop."""
    for module in program.modules:
        for node in module.of(ast.If):
            if not isinstance(node, ast.If) or not node.body or not isinstance(node.body[-1], ast.Break):
                continue
            scope = module.scope_of(node)
            test = program.rank_test(node.test, scope)
            if test is None or not test.sure or not test.first or test.either:
                continue
            loops = [h for h, _ in module.ancestors(node) if isinstance(h, (ast.For, ast.While))]
            if loops and any(_backward_in(call, {loops[0]}) for call in program.methods("backward")):
                yield Match(
                    module.document,
                    module.span(node.test),
                    "One rank alone leaves the training loop.",
                    why="The others go on, and wait in the next all-reduce until the timeout.",
                )


def _by_own_loss(program: Program) -> Iterator[Match]:
    """``if loss.item() < 0.1: break``, where the loss is of this rank's batch: it has a backward in the same loop, and
    goes into nothing that the ranks may share."""
    for module in program.modules:
        for node in module.of(ast.If):
            if not isinstance(node, ast.If) or not isinstance(node.body[-1], ast.Break):
                continue
            scope = module.scope_of(node)
            loop = next((h for h, _ in module.ancestors(node) if isinstance(h, (ast.For, ast.While))), None)
            if loop is None or program.guards.limited(node, scope):
                continue
            for name in sorted(_compared(node.test)):
                if _is_own_loss(program, module, loop, name):
                    yield Match(
                        module.document,
                        module.span(node.test),
                        f"Each rank leaves the loop by {name} of its own batch, and not when the others do.",
                        why="The ranks have other samples, and other losses. One of them leaves first, and the others "
                        "wait in the next all-reduce until the timeout.",
                        fix=f"Share it first: value = {name}.detach().clone(); dist.all_reduce(value), and decide by "
                        "the value.",
                    )
                    break


def _compared(test: ast.expr) -> set[str]:
    """The names that a condition compares: ``loss``, ``loss.item()``, ``float(loss)``; or asks of being finite."""
    if isinstance(test, ast.BoolOp):
        return set().union(*map(_compared, test.values))
    if isinstance(test, ast.Compare):
        return {name for side in (test.left, *test.comparators) if (name := _number(side))}
    return set()


def _number(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("item", "detach", "cpu"):
            return _number(node.func.value)
        if isinstance(node.func, ast.Name) and node.func.id == "float" and len(node.args) == 1:
            return _number(node.args[0])
    return node.id if isinstance(node, ast.Name) else ""


_OF_ONE_RANK = frozenset({"print", "float", "append", "isnan", "isfinite", "add_scalar", "info", "log"})


def _is_own_loss(program: Program, module: Module, loop: ast.AST, name: str) -> bool:
    inside = set(ast.walk(loop))
    backward = False
    for call in program.calls:
        if call.module is not module:
            continue
        node = call.node
        if isinstance(node.func, ast.Attribute) and _last(node.func.value) == name:
            if node.func.attr == "backward":
                backward |= node in inside
            elif node.func.attr not in ("item", "detach", "cpu"):
                return False
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        if call.last not in _OF_ONE_RANK and any(name in identifiers(argument) for argument in given):
            return False  # a function may reduce it
    bound = [n for n in inside if isinstance(n, ast.Assign) and any(_last(t) == name for t in n.targets)]
    return backward and len(bound) == 1


def _flags(program: Program) -> set[str]:
    """The names that handlers of signals set to True."""
    found: set[str] = set()
    for call in program.named("signal.signal"):
        handler = call.argument("handler", 1)
        for function in program.graph.functions(handler, call.scope) if handler is not None else ():
            for node in ast.walk(function.node):
                if (
                    isinstance(node, ast.Assign)
                    and isinstance(node.value, ast.Constant)
                    and node.value.value is True
                    and len(node.targets) == 1
                ):
                    found |= {_last(node.targets[0])}
    return found - {""}


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _asked(node: ast.AST, flags: set[str]) -> str:
    """The flag that a condition asks by itself: ``if stop:``, ``if self.stop and …:``."""
    test = getattr(node, "test", None)
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    for part in parts:
        if isinstance(part, (ast.Name, ast.Attribute)) and _last(part) in flags:
            return ast.unparse(part)
    return ""


def _agreed(program: Program, flags: set[str]) -> bool:
    """Whether a flag goes into anything that the ranks may share: it is an argument, or assigned from a call."""
    for call in program.calls:
        if call.name == "signal.signal":
            continue
        given: list[ast.expr] = [*call.node.args, *(keyword.value for keyword in call.node.keywords)]
        if any(
            flags & identifiers(argument) for argument in given if not isinstance(argument, ast.JoinedStr)
        ):
            return True
    for module in program.modules:
        for node in ast.walk(module.tree):
            if (
                isinstance(node, ast.Assign)
                and any(_last(target) in flags for target in node.targets)
                and not isinstance(node.value, ast.Constant)
            ):
                return True
    return False


def _in_training(program: Program, module: Module, node: ast.AST) -> bool:
    holders = {holder for holder, _ in module.ancestors(node)}
    return any(loop.trains and loop.node in holders for loop in program.data.loops) or any(
        _backward_in(call, holders) for call in program.methods("backward")
    )


def _backward_in(call: Call, holders: set[ast.AST]) -> bool:
    return any(
        holder in holders
        for holder, _ in call.module.ancestors(call.node)
        if isinstance(holder, (ast.For, ast.While))
    )


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
