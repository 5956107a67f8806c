"""No partition, at a site whose GPUs are in one of their own."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job import Job
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    site = job.site
    if (
        site is None
        or not job.request.asks_for_gpus
        or site.scheduler != job.scheduler.replace("torque", "pbs")
    ):
        return
    name = site.when.get("gpu", {}).get("queue") or site.defaults.get("queue")
    letter = "partition" if job.scheduler == "slurm" else "q"
    if not isinstance(name, str) or not name or job.request.get(letter) is not None:
        return
    directive = job.request.gpu_directive or job.request.directives[-1]
    end = directive.line.end
    line = f"\n#SBATCH --partition={name}" if job.scheduler == "slurm" else f"\n#PBS -q {name}"
    yield Match(
        job.document,
        directive.span,
        f"The job asks for GPUs and names no {'partition' if job.scheduler == 'slurm' else 'queue'}; "
        f"those of {site.name} are in {name}.",
        (Edit(Span(end, end), line),),
    )


RULE = Rule(
    code="RK152",
    name="no-gpu-partition",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A job with GPUs names no partition or queue, at a site whose profile has one for them.",
    why="The default partition may have no GPUs: Requested node configuration is not available.",
    fix="Name the partition or queue.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """--- site.json
{"name": "here", "scheduler": "slurm", "when": {"gpu": {"queue": "accel"}}}
--- job.sh
#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=1
python train.py
""",
        """--- site.json
{"name": "there", "scheduler": "pbs", "defaults": {"queue": "gpu"}}
--- job.sh
#!/bin/bash
#PBS -l select=1:ncpus=4:ngpus=1
cd "$PBS_O_WORKDIR"
python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=1
python train.py
""",
        """--- site.json
{"name": "here", "scheduler": "slurm", "when": {"gpu": {"queue": "accel"}}}
--- job.sh
#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=1 -p accel
python train.py
""",
    ),
)
