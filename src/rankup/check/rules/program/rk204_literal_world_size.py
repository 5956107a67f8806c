"""The number of processes is written down."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.program.module import Call
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import Kind, depends_on, the_constant
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import imported, name_for, replaced
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if program.spawns or program.started:
        return
    for call in program.inits:
        number = the_constant(program.value(call, "world_size", 3))
        rank = program.value(call, "rank", 4)
        if isinstance(number, int) and number > 1 and depends_on(rank, Kind.RANK, Kind.OPTION):
            yield _match(call, "world_size", 3, number)
    if program.inits:
        for call in program.data.samplers:
            number = the_constant(program.value(call, "num_replicas", 1))
            if isinstance(number, int) and number > 1:
                yield _match(call, "num_replicas", 1, number)


def _match(call: Call, keyword: str, position: int, number: int) -> Match:
    given = call.argument(keyword, position)
    assert given is not None
    return Match(
        call.module.document,
        call.module.span(given),
        f"{keyword} is always {number}, however many processes are started.",
        _edit(call, keyword, position),
    )


def _edit(call: Call, keyword: str, position: int) -> tuple[Edit, ...]:
    given = call.argument(keyword, position)
    assert given is not None
    size = name_for(call.module, "torch.distributed.get_world_size")
    if keyword == "num_replicas":
        return (replaced(call.module, given, f"{size}()"),) if size is not None else ()
    missing = imported(call.module, "os")
    return (*missing, replaced(call.module, given, 'int(os.environ["WORLD_SIZE"])'))


RULE = Rule(
    code="RK204",
    name="literal-world-size",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="The number of processes is a constant in the program.",
    why="With another number of processes the start waits for ranks that never come, or ranks have no place in the "
    "group.",
    fix="Read WORLD_SIZE (torchrun) or SLURM_NTASKS (srun), or leave the argument out: init_process_group reads them.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """import os
import torch.distributed as dist

dist.init_process_group("nccl", rank=int(os.environ["RANK"]), world_size=4)
""",
        """import os
import torch.distributed as dist
from torch.utils.data import DistributedSampler

WORLD = 8

def main(dataset):
    dist.init_process_group("nccl")
    return DistributedSampler(dataset, num_replicas=WORLD, rank=dist.get_rank())
""",
    ),
    silent=(
        """import os
import torch.distributed as dist

dist.init_process_group("nccl", rank=int(os.environ["RANK"]), world_size=int(os.environ.get("WORLD_SIZE", 1)))
""",
        """import torch.distributed as dist

dist.init_process_group("gloo", rank=0, world_size=1)
""",
    ),
)
