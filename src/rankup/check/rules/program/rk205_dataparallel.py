"""nn.DataParallel on a machine with several GPUs, or under a launcher."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.program.frameworks import Does
from rankup.check.facts.program.program import Program
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if program.wraps or program.gets(Does.WRAP):
        return
    for call in program.named("torch.nn.DataParallel", "torch.nn.parallel.DataParallel"):
        many = program.many_ranks or program.distributed
        yield match(
            call.module,
            call.node,
            "DataParallel in each of several processes: they train separate models on the same GPUs."
            if many
            else "DataParallel uses one process for all GPUs of one node.",
            severity=Severity.WARNING if many else Severity.NOTE,
        )


RULE = Rule(
    code="RK205",
    name="dataparallel",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="The model is wrapped in nn.DataParallel.",
    why="DataParallel copies the model in each step and uses the GPUs of one node from one process. Under torchrun or "
    "srun each process trains a model of its own on all GPUs (transformers#9824).",
    fix="Start one process per GPU and wrap the model in DistributedDataParallel.",
    find=find,
    fires=(
        """import torch

model = torch.nn.DataParallel(torch.nn.Linear(2, 2)).cuda()
""",
        """import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
model = nn.DataParallel(nn.Linear(2, 2)).cuda()
""",
    ),
    silent=(
        """import torch
from torch.nn.parallel import DistributedDataParallel

def wrap(model, distributed):
    if distributed:
        return DistributedDataParallel(model)
    return torch.nn.DataParallel(model)
""",
        """from mytools import DataParallel

model = DataParallel(None)
""",
    ),
)
