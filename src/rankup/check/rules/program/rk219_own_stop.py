"""A rank leaves the training at its own signal, or alone."""

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
    what="A rank leaves the training loop at its own signal, or alone, without asking the others.",
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
        _HEAD
        + _STEP
        + "    if stop and step % 10 == 0:\n        torch.save(model.state_dict(), 'last.pt')\n        break\n"
        + "dist.destroy_process_group()\n",
    ),
    silent=(
        _HEAD
        + _STEP
        + """    if dist.get_rank() != 0:
        continue
    for name, value in model.named_parameters():
        if dist.get_rank() == 0 and value.isnan().any():
            print(name)
            break
dist.destroy_process_group()
""",
        _HEAD
        + _STEP
        + """    flag = torch.tensor(int(stop), device="cuda")
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    if flag.item():
        break
dist.destroy_process_group()
""",
        _HEAD
        + """def agreed():
    flag = torch.tensor([stop], device="cuda", dtype=torch.int)
    dist.all_reduce(flag)
    return flag.item() > 0

"""
        + _STEP
        + "    if agreed():\n        break\ndist.destroy_process_group()\n",
        _HEAD + _STEP + "    if stop:\n        print('will stop soon')\ndist.destroy_process_group()\n",
    ),
)
