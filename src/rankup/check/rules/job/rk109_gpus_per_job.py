"""--gpus for a whole job of several nodes."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.job import Job
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    request = job.request
    directive = request.get("gpus")
    if (
        job.site is None
        or directive is None
        or not request.many_nodes
        or request.get("gpus-per-node", "gpus-per-task")
    ):
        return
    nodes, total = request.nodes or 1, request.gpus_per_node
    edits: tuple[Edit, ...] = ()
    if total is not None and job.document[directive.span].startswith("--gpus="):
        kind = directive.value.rpartition(":")[0]
        edits = (Edit(directive.span, f"--gpus-per-node={kind + ':' if kind else ''}{total}"),)
    yield Match(
        job.document,
        directive.span,
        f"--gpus={directive.value} is for the whole job: its {nodes} nodes may get different numbers of GPUs.",
        edits,
    )


RULE = Rule(
    code="RK109",
    name="gpus-per-job",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A job of several nodes asks for GPUs with --gpus, for all nodes together.",
    why="SLURM may give the nodes different numbers, and every launcher starts the same number on each.",
    fix="Ask with --gpus-per-node.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """--- site.json
{"name": "here", "scheduler": "slurm", "node": {"gpus": 4}}
--- job.sh
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4
#SBATCH --gpus=8
srun python train.py
""",
        """--- site.json
{"name": "here", "scheduler": "slurm", "node": {"gpus": 4}}
--- job.sh
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus=a100:4
srun torchrun --nnodes=2 --nproc_per_node=2 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4
#SBATCH --gpus=8
srun python train.py
""",
        """--- site.json
{"name": "here", "scheduler": "slurm", "node": {"gpus": 4}}
--- job.sh
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus=4
srun python train.py
""",
    ),
)
