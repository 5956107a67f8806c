"""More ranks, a larger global batch, and the same learning rate."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.frameworks import Does
from rankup.check.facts.program.module import Scope
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sounds import SCALED
from rankup.check.facts.program.value import Kind
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import goes_in, makes_optimizer, match
from rankup.findings.finding import Confidence, Severity

_MOST = 8  # ranks up to which nobody changes the rate


def find(program: Program) -> Iterator[Match]:
    ranks = max([(s.nodes or 1) * (s.processes_per_node or 1) for s in program.starts], default=0)
    if ranks < _MOST or not program.whole or not program.averages or program.gets(Does.SCHEDULE):
        return
    loaders = [loader.call for loader in program.data.loaders if loader.trains and loader.samplers]
    batches = [(call.argument("batch_size", 1), call.scope) for call in loaders]
    if not loaders or any(batch is None or _knows_ranks(program, batch, scope) for batch, scope in batches):
        return
    for call in program.calls if not program.methods("LambdaLR") else ():
        rate = call.argument("lr", 1) if makes_optimizer(call) else None
        if rate is not None and not _knows_ranks(program, rate, call.scope):
            yield match(
                call.module,
                rate,
                f"The global batch is {ranks} times that of one process, and the learning rate does not know it.",
            )


def _knows_ranks(program: Program, node: ast.expr, scope: Scope) -> bool:
    return goes_in(program, node, scope, (Kind.WORLD_SIZE, Kind.LOCAL_SIZE), SCALED)


_JOB = """--- job.sh
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
srun python train.py
--- train.py
"""
_PROGRAM = """import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

def main(net, dataset):
    dist.init_process_group("nccl")
    model = DDP(net)
    loader = DataLoader(dataset, batch_size=32, sampler=DistributedSampler(dataset))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        model(x).sum().backward()
        optimizer.step()

main(None, [])
"""

RULE = Rule(
    code="RK502",
    name="lr-batch",
    severity=Severity.NOTE,
    confidence=Confidence.LIKELY,
    what="The global batch grows with the number of ranks, and the learning rate is constant.",
    why="A run on 8 GPUs makes an eighth of the steps with a batch 8 times as large: with the rate of one GPU it often "
    "ends at a worse model (mmdetection#351).",
    fix="Decide on a rule: keep the global batch, or scale the rate with it and warm up.",
    find=find,
    fires=(
        _JOB + _PROGRAM,
        _JOB + _PROGRAM.replace("SGD(model.parameters(), lr=0.1)", "AdamW(model.parameters(), 3e-4)"),
    ),
    silent=(
        _JOB + _PROGRAM.replace("lr=0.1", "lr=0.1 * dist.get_world_size()"),
        _PROGRAM,
    ),
)
