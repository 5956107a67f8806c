"""The time of GPU work, taken without waiting for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.flow import comes_after
from rankup.check.facts.program.module import Call, Scope, place
from rankup.check.facts.program.names import words
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import Kind, constants
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import alone, lines_before, name_for
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity

_CLOCKS = words(
    "time.time time.perf_counter time.monotonic timeit.default_timer time.perf_counter_ns time.time_ns"
)
#: Any of these waits for the GPU.
_WAITS = words("item cpu numpy tolist synchronize barrier all_reduce wait print gather elapsed_time")
_WORKS = words("backward mm matmul bmm conv2d")


def find(program: Program) -> Iterator[Match]:
    if not program.uses_torch or program.methods("synchronize", "elapsed_time") or not _on_gpu(program):
        return
    for module in program.modules:
        for node in module.of(ast.BinOp):
            if not isinstance(node.op, ast.Sub):
                continue
            scope = module.scope_of(node)
            end, start = _reading(program, node.left, scope), _reading(program, node.right, scope)
            if (
                start is None
                or end is None
                or start.scope is not end.scope
                or not _is_short(program, start, end)
            ):
                continue
            # In a training each step is timed: what one reading misses, the next one has.
            in_training = any(loop.trains and start in loop.calls for loop in program.data.loops)
            yield match(
                module,
                node,
                f"The time since {start.module.line(start.node.lineno)} is taken while the GPU may still be working.",
                *_edits(start, end),
                severity=Severity.NOTE if in_training else None,
            )


def _on_gpu(program: Program) -> bool:
    devices = [program.values.of(call.node, call.scope) for call in program.named("torch.device")]
    named = [atom.detail[0] for value in devices for atom in value if atom.kind is Kind.DEVICE]
    named += [text for value in devices for text in constants(value)]
    return bool(program.methods("cuda") or program.named("torch.cuda.set_device")) or any(
        str(name).partition(":")[0] == "cuda" for name in named
    )


def _reading(program: Program, node: ast.expr, scope: Scope) -> Call | None:
    """The reading of a clock that a number is."""
    if isinstance(node, ast.Name):
        found = scope.definitions.get(node.id, [])
        if len(found) != 1 or found[0].value is None or found[0].path:
            return None
        node = found[0].value
    call = program.values.call(node)
    return call if call is not None and call.name in _CLOCKS else None


def _is_short(program: Program, start: Call, end: Call) -> bool:
    """Whether there is GPU work between the readings, no loop over data around it, and nothing that waits."""
    inside = [
        call
        for call in start.scope.calls
        if comes_after(call, start)
        and (call.node.end_lineno or 0, call.node.end_col_offset or 0) <= place(end.node)
    ]
    if any(one.last in _WAITS for call in inside for one in program.within(call, 3)):
        return False
    loops = [loop for loop in program.data.loops if loop.scope is start.scope]
    timed = [loop for loop in loops if place(start.node) < place(loop.node) < place(end.node)]
    if any(loop.loaders or loop.trains for loop in timed):
        return False  # a whole epoch: what the GPU still has to do is small against it
    return any(
        call.last in _WORKS or call.name.startswith("torch.matmul") or _is_model(program, call)
        for call in inside
    )


def _is_model(program: Program, call: Call) -> bool:
    if call.name or not isinstance(call.node.func, (ast.Name, ast.Attribute)):
        return False
    made = program.made(call.node.func, call.scope)
    models = ("torch.nn.", "torchvision.models.")
    return any(one in program.wraps or one.name.startswith(models) for one in made)


def _edits(start: Call, end: Call) -> tuple[Edit, ...]:
    cuda = name_for(start.module, "torch.cuda.synchronize")
    statements = [call.module.statement(call.node) for call in (start, end)]
    if (
        cuda is None
        or statements[0] is statements[1]
        or not all(alone(start.module, one) for one in statements)
    ):
        return ()
    return tuple(lines_before(start.module, one, f"{cuda}()") for one in statements)


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
