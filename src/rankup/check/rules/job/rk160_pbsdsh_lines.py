"""A text of several lines for pbsdsh."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    if job.scheduler != "pbs":
        return
    for command in job.named("bash", "sh"):
        step = command.shell.step
        if step is None or step.kind != "pbsdsh" or command.parent is None or command.parent.step is not step:
            continue
        for flag, word in zip(command.args, command.argv[2:], strict=False):
            if flag and flag.startswith("-") and flag.endswith("c") and "\n" in word.text.strip():
                yield Match(
                    job.document,
                    command.span,
                    "pbsdsh hands over the first line of this text only.",
                )


RULE = Rule(
    code="RK160",
    name="pbsdsh-lines",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="The command that pbsdsh starts is a text of several lines.",
    why="A text of several lines does not reach the task: syntax error, unexpected end of file (seen on OpenPBS).",
    fix="Write it to a file, and start the file: pbsdsh -- bash FILE.",
    find=find,
    fires=(
        """#!/bin/bash
#PBS -l select=2:ncpus=8:ngpus=1:mpiprocs=1
pbsdsh -- bash -c '
cd /home/me/project
torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=node1:29500 train.py
'
""",
        """#!/bin/bash
#PBS -l select=2:ncpus=8:ngpus=1:mpiprocs=1
head=$(hostname)
pbsdsh -- bash -l -c "cd $PBS_O_WORKDIR
torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$head:29500 train.py"
""",
    ),
    silent=(
        """#!/bin/bash
#PBS -l select=2:ncpus=8:ngpus=1:mpiprocs=1
head=$(hostname)
pbsdsh -- bash -c "cd $PBS_O_WORKDIR && \\
  torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$head:29500 train.py"
""",
        """#!/bin/bash
#PBS -l select=2:ncpus=8:ngpus=1:mpiprocs=1
cat > "$PBS_O_WORKDIR/agent.$PBS_JOBID.sh" <<EOF
cd $PBS_O_WORKDIR
torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$(hostname):29500 train.py
EOF
pbsdsh -- bash "$PBS_O_WORKDIR/agent.$PBS_JOBID.sh"
""",
    ),
)
