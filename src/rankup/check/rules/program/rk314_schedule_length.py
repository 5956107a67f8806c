"""A schedule as long as if one rank had all the data."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.data import Loader
from rankup.check.facts.program.module import Call, identifiers
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sharding import expressions
from rankup.check.facts.program.value import Kind, depends_on
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_LENGTHS = {
    "OneCycleLR": ("total_steps", "steps_per_epoch"),
    "CosineAnnealingLR": ("T_max",),
    "LinearLR": ("total_iters",),
    "PolynomialLR": ("total_iters",),
    "get_linear_schedule_with_warmup": ("num_training_steps",),
    "get_cosine_schedule_with_warmup": ("num_training_steps",),
}


def find(program: Program) -> Iterator[Match]:
    if not program.whole or program.frameworks or not program.inits or not program.data.samplers:
        return
    if any(_divides_batch(program, loader) for loader in program.data.loaders):
        return
    data = {ast.unparse(s.argument("dataset", 0) or s.node) for s in program.data.samplers}
    for call in program.methods(*_LENGTHS):
        for keyword in _LENGTHS[call.last]:
            given = call.argument(keyword, 2 if call.last.startswith("get_") else None)
            if given is None:
                continue
            whole = _undivided(program, call, given, data)
            if whole:
                yield Match(
                    call.module.document,
                    call.module.span(given),
                    f"{keyword} is computed from {whole}, all the data; a rank makes only its part of these steps.",
                )


def _divides_batch(program: Program, loader: Loader) -> bool:
    """``batch_size // world_size`` for each rank: then ``len(dataset) // batch_size`` is a rank's number of steps."""
    batch = loader.call.argument("batch_size", 1)
    return batch is not None and any(
        isinstance(part, ast.expr) and depends_on(program.values.of(part, inside), Kind.WORLD_SIZE)
        for part, inside in expressions(program, batch, loader.call.scope, depth=3)
    )


def _undivided(program: Program, call: Call, given: ast.expr, data: set[str]) -> str:
    """``len(dataset) // batch_size`` without the number of ranks."""
    found = ""
    for part, inside in expressions(program, given, call.scope, depth=3):
        if any("world" in name.lower() or "replica" in name.lower() for name in identifiers(part)):
            return ""
        if isinstance(part, ast.expr) and depends_on(program.values.of(part, inside), Kind.WORLD_SIZE):
            return ""
        for node in ast.walk(part):
            if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv)):
                for factor in _factors(node.left):
                    text = ast.unparse(factor)
                    if text.startswith("len(") and text[4:-1] in data and not _is_global(node.right):
                        found = text
    return found


def _factors(node: ast.expr) -> list[ast.expr]:
    """``epochs * len(dataset)`` is divided as a whole."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*_factors(node.left), *_factors(node.right)]
    return [node]


def _is_global(node: ast.expr) -> bool:
    return any(
        word in name.lower() for name in identifiers(node) for word in ("global", "total", "effective")
    )


RULE = Rule(
    code="RK314",
    name="schedule-length",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="The length of a learning-rate schedule is computed from the undivided data set.",
    why="With N ranks each makes 1/N of these steps, so training ends when the schedule has only begun.",
    fix="Use len(loader), which knows the sampler, or divide by the world size.",
    find=find,
    fires=(
        """import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def main(dataset, optimizer, epochs):
    dist.init_process_group("nccl")
    loader = DataLoader(dataset, 32, sampler=DistributedSampler(dataset))
    steps = len(dataset) // 32 * epochs
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=steps)

main([], None, 3)
""",
        """import torch
import torch.distributed as dist
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DistributedSampler

BATCH = 64

def main(train, optimizer):
    dist.init_process_group("nccl")
    sampler = DistributedSampler(train)
    scheduler = CosineAnnealingLR(optimizer, T_max=10 * (len(train) // BATCH))

main([], None)
""",
    ),
    silent=(
        """import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def main(dataset, optimizer, epochs):
    dist.init_process_group("nccl")
    loader = DataLoader(dataset, 32, sampler=DistributedSampler(dataset))
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=len(loader) * epochs)

main([], None, 3)
""",
        """import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler

def main(dataset, optimizer, epochs):
    dist.init_process_group("nccl")
    sampler = DistributedSampler(dataset)
    steps = len(dataset) // (32 * dist.get_world_size()) * epochs
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)

main([], None, 3)
""",
    ),
)
