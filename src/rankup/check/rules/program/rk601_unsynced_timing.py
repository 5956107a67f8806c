"""The time of GPU work, taken without waiting for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program import Program
from rankup.check.facts.program_module import Call, Scope, place
from rankup.check.facts.program_value import Kind, constants
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import alone, lines_before, name_for
from rankup.findings.finding import Confidence, Severity

_CLOCKS = (
    "time.time",
    "time.perf_counter",
    "time.monotonic",
    "timeit.default_timer",
    "time.perf_counter_ns",
    "time.time_ns",
)
#: Any of these waits for the GPU.
_WAITS = {
    "item",
    "cpu",
    "numpy",
    "tolist",
    "synchronize",
    "barrier",
    "all_reduce",
    "wait",
    "print",
    "gather",
    "elapsed_time",
}
_WORKS = {"backward", "mm", "matmul", "bmm", "conv2d"}


def find(program: Program) -> Iterator[Match]:
    if not program.uses_torch or program.methods("synchronize", "elapsed_time") or not _on_gpu(program):
        return
    for module in program.modules:
        for node in module.of(ast.BinOp):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
                scope = module.scope_of(node)
                pair = _pair(program, node, scope)
                if pair is not None and _is_short(program, scope, *pair):
                    start, end = pair
                    yield Match(
                        module.document,
                        module.span(node),
                        f"The time since line {start.node.lineno} is taken while the GPU may still be working.",
                        _edits(start, end),
                        severity=Severity.NOTE if _in_training(program, start) else None,
                    )


def _on_gpu(program: Program) -> bool:
    return bool(program.methods("cuda") or program.named("torch.cuda.set_device")) or any(
        text in ("cuda",) or (isinstance(text, str) and text.startswith("cuda:"))
        for call in program.named("torch.device")
        for atom in program.values.of(call.node, call.scope)
        for text in ([atom.detail[0]] if atom.kind is Kind.DEVICE else constants(frozenset({atom})))
    )


def _pair(program: Program, node: ast.BinOp, scope: Scope) -> tuple[Call, Call] | None:
    """The two readings of the clock whose difference is taken."""
    end = _reading(program, node.left, scope)
    start = _reading(program, node.right, scope)
    if start is None or end is None or start.scope is not end.scope or place(start.node) >= place(end.node):
        return None
    return start, end


def _reading(program: Program, node: ast.expr, scope: Scope) -> Call | None:
    if isinstance(node, ast.Call):
        call = program.values.call(node)
        return call if call is not None and call.name in _CLOCKS else None
    if isinstance(node, ast.Name):
        found = scope.definitions.get(node.id, [])
        if len(found) == 1 and found[0].value is not None and not found[0].path:
            return _reading(program, found[0].value, scope) if isinstance(found[0].value, ast.Call) else None
    return None


def _is_short(program: Program, scope: Scope, start: Call, end: Call) -> bool:
    """Whether there is GPU work between the readings, no loop over data around it, and nothing that waits."""
    between = [
        call for call in scope.calls if place(start.node) < place(call.node) and _end(call) <= place(end.node)
    ]
    if not between or any(call.last in _WAITS for call in between):
        return False
    for call in between:
        for target in program.graph.called.get(call, ()):
            if any(c.last in _WAITS for s in program.graph.reached(target, 3) for c in s.calls):
                return False
    loops = [
        loop
        for loop in program.data.loops
        if loop.scope is scope and place(start.node) < place(loop.node) < place(end.node)
    ]
    if any(loop.loaders or loop.trains for loop in loops):
        return False  # a whole epoch: what the GPU still has to do is small against it
    return any(call.last in _WORKS or call.name.startswith("torch.matmul") for call in between) or any(
        _is_model(program, call) for call in between
    )


def _end(call: Call) -> tuple[int, int]:
    return call.node.end_lineno or 0, call.node.end_col_offset or 0


def _is_model(program: Program, call: Call) -> bool:
    return (
        any(
            atom.call is not None
            and (
                atom.call in program.wraps or atom.call.name.startswith(("torch.nn.", "torchvision.models."))
            )
            for atom in program.values.of(call.node.func, call.scope)
        )
        if isinstance(call.node.func, (ast.Name, ast.Attribute)) and not call.name
        else False
    )


def _in_training(program: Program, start: Call) -> bool:
    """Whether each step of a training is timed: what one reading misses, the next one has."""
    return any(loop.trains and start in loop.calls for loop in program.data.loops)


def _edits(start: Call, end: Call) -> tuple[Edit, ...]:
    cuda = name_for(start.module, "torch.cuda.synchronize")
    first, second = start.module.statement(start.node), end.module.statement(end.node)
    if cuda is None or first is second or not (alone(start.module, first) and alone(end.module, second)):
        return ()
    return (lines_before(start.module, first, f"{cuda}()"), lines_before(end.module, second, f"{cuda}()"))


RULE = Rule(
    code="RK601",
    name="unsynced-timing",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A clock is read around GPU work, and nothing waits for the GPU.",
    why="CUDA calls return before the work is done. The time is that of starting the kernels, often a hundredth of the "
    "true one.",
    fix="Call torch.cuda.synchronize() before each reading of the clock, and leave out the first steps.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """import time
import torch

model = torch.nn.Linear(1000, 1000).cuda()
x = torch.randn(64, 1000).cuda()
start = time.time()
for _ in range(100):
    y = model(x)
print("seconds", time.time() - start)
""",
        """import time
import torch

def step(model, x, device):
    x = x.to(torch.device("cuda"))
    begin = time.perf_counter()
    loss = model(x).sum()
    loss.backward()
    end = time.perf_counter()
    return end - begin
""",
    ),
    silent=(
        """import time
import torch

model = torch.nn.Linear(1000, 1000).cuda()
x = torch.randn(64, 1000).cuda()
torch.cuda.synchronize()
start = time.time()
y = model(x)
torch.cuda.synchronize()
print("seconds", time.time() - start)
""",
        """import time
import torch

def epoch(model, loader, optimizer):
    start = time.time()
    for x, y in loader:
        loss = model(x.cuda()).sum()
        loss.backward()
        optimizer.step()
        total = loss.item()
    print(time.time() - start)
""",
    ),
)
