"""Agents of one group that are started one after another."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.facts.job.questions import agents, nnodes
from rankup.check.facts.job.signals import in_background
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    for launch in agents(job):
        step = launch.step
        if step is None or step.kind != "ssh" or not launch.command.in_loop or in_background(launch.command):
            continue
        if launch.command.function or "nnodes" not in launch.options or nnodes(job, launch) == 1:
            continue
        yield Match(
            job.document,
            launch.span,
            "This loop waits for the torchrun of one node before it starts that of the next.",
        )


_HEAD = """#!/bin/bash
#PBS -l select=2:ncpus=8:ngpus=4
cd $PBS_O_WORKDIR
HEAD=$(head -n 1 $PBS_NODEFILE)
RANK=0
for node in $(sort -u $PBS_NODEFILE); do
"""
_AGENT = "torchrun --nnodes 2 --nproc_per_node 4 --node_rank $RANK --master_addr $HEAD $PWD/train.py"

RULE = Rule(
    code="RK171",
    name="agents-one-by-one",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="A loop starts the torchrun of each node by ssh, each in the foreground.",
    why="The first agent waits for those of the other nodes, which the loop starts only after it has ended: it ends "
    "with the time limit of the rendezvous.",
    fix="Write & after each ssh, and wait after the loop.",
    find=find,
    fires=(
        _HEAD + f'    ssh $node "cd $PWD; {_AGENT}"\n    RANK=$((RANK + 1))\ndone\n',
        _HEAD + f'    ssh -n "$node" "{_AGENT}" > log-$RANK.txt 2>&1\n    RANK=$((RANK + 1))\ndone\nwait\n',
    ),
    silent=(
        _HEAD + f'    ssh $node "cd $PWD; {_AGENT}" &\n    RANK=$((RANK + 1))\ndone\nwait\n',
        _HEAD + '    ssh $node "cd $PWD; torchrun --standalone --nproc_per_node 4 $PWD/train.py"\ndone\n',
    ),
)
