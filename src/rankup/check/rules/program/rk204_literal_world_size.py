"""The number of processes is written down."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.program.module import Call
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import Kind, depends_on, the_constant
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import imported, name_for, replaced
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if program.spawns or program.started or not program.inits:
        return
    groups = [
        call for call in program.inits if depends_on(program.value(call, "rank", 4), Kind.RANK, Kind.OPTION)
    ]
    given = [(call, "world_size", call.argument("world_size", 3)) for call in groups]
    given += [(call, "num_replicas", call.argument("num_replicas", 1)) for call in program.data.samplers]
    for call, keyword, size in given:
        number = the_constant(program.values.of(size, call.scope))
        if size is not None and isinstance(number, int) and number > 1:
            yield match(
                call.module,
                size,
                f"{keyword} is always {number}, however many processes are started.",
                *(_edit(call, keyword, replaced(call.module, size, ""))),
            )


def _edit(call: Call, keyword: str, place: Edit) -> tuple[Edit, ...]:
    if keyword == "world_size":
        return (*imported(call.module, "os"), Edit(place.span, 'int(os.environ["WORLD_SIZE"])'))
    size = name_for(call.module, "torch.distributed.get_world_size")
    return (Edit(place.span, f"{size}()"),) if size is not None else ()


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
