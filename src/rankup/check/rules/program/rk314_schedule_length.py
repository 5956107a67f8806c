"""A schedule as long as if one rank had all the data."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.data import Loader
from rankup.check.facts.program.frameworks import Does
from rankup.check.facts.program.module import Call, same
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sharding import expressions
from rankup.check.facts.program.sounds import GLOBAL, WORLD, sounds
from rankup.check.facts.program.value import Kind
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import goes_in, lengths_in, match
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
    if not program.whole or not program.distributed or program.gets(Does.SCHEDULE):
        return
    if not program.data.samplers or any(_divides_batch(program, loader) for loader in program.data.loaders):
        return
    for call in program.methods(*_LENGTHS):
        for keyword in _LENGTHS[call.last]:
            given = call.argument(keyword, 2 if call.last.startswith("get_") else None)
            whole = _undivided(program, call, given) if given is not None else ""
            if given is not None and whole:
                yield match(
                    call.module,
                    given,
                    f"{keyword} is computed from {whole}, all the data; a rank makes only its part of these steps.",
                )


def _divides_batch(program: Program, loader: Loader) -> bool:
    """``batch_size // world_size`` for each rank: then ``len(dataset) // batch_size`` is a rank's number of steps."""
    batch = loader.call.argument("batch_size", 1)
    return batch is not None and goes_in(program, batch, loader.call.scope, (Kind.WORLD_SIZE,), depth=3)


def _undivided(program: Program, call: Call, given: ast.expr) -> str:
    """``len(dataset) // batch_size`` without the number of ranks."""
    if goes_in(program, given, call.scope, (Kind.WORLD_SIZE,), WORLD, depth=3):
        return ""
    data = [sampler.argument("dataset", 0) for sampler in program.data.samplers]
    parts = [node for part, _ in expressions(program, given, call.scope, depth=3) for node in ast.walk(part)]
    for node in parts:
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv)):
            for whole, of in lengths_in(node.left):
                if any(same(of, one) for one in data) and not sounds(node.right, GLOBAL):
                    return ast.unparse(whole)
    return ""


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
