"""A rendezvous file that is left behind."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.program.names import words
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import the_constant
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity

_REMOVES = words("remove unlink rmtree NamedTemporaryFile mkstemp mkdtemp")


def find(program: Program) -> Iterator[Match]:
    for call in program.inits if program.whole and not program.methods(*_REMOVES) else ():
        given = call.argument("init_method", 1)
        address = the_constant(program.values.of(given, call.scope))
        if given is not None and isinstance(address, str) and address.startswith("file://"):
            name = address.removeprefix("file://")
            yield match(call.module, given, f"The rendezvous file {name} is never removed.")


RULE = Rule(
    code="RK216",
    name="file-rendezvous",
    severity=Severity.WARNING,
    confidence=Confidence.SURE,
    what="Ranks meet through a file with a constant name that nobody removes.",
    why="If a job ends early the file stays. The next job reads the old ranks from it and hangs or fails; so does a "
    "second job that runs at the same time.",
    fix="Use env:// with torchrun, or a file name with the job's id that is removed at the start.",
    find=find,
    fires=(
        """import os
import torch.distributed as dist

dist.init_process_group("nccl", init_method="file:///scratch/me/rendezvous", rank=int(os.environ["RANK"]), world_size=2)
""",
        """import os
import torch.distributed as dist

URL = "file:///tmp/shared"

def main():
    dist.init_process_group("gloo", URL, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))

main()
""",
    ),
    silent=(
        """import os
import torch.distributed as dist

path = f"/scratch/me/{os.environ['SLURM_JOB_ID']}"
dist.init_process_group("nccl", init_method="file://" + path, rank=int(os.environ["RANK"]), world_size=2)
""",
        """import torch.distributed as dist

dist.init_process_group("nccl", init_method="env://")
""",
    ),
)
