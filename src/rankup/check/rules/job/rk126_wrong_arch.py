"""An image or an environment that was built for another processor."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.facts.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_NAMES = {
    "aarch64": re.compile(r"(?<![a-z0-9])(x86[_-]64|amd64)(?![a-z0-9])", re.I),
    "x86_64": re.compile(r"(?<![a-z0-9])(aarch64|arm64)(?![a-z0-9])", re.I),
}


def find(job: Job) -> Iterator[Match]:
    arch = job.site.node.arch if job.site is not None else ""
    if arch not in _NAMES or job.site is None:
        return
    for command in job.commands:
        if command.name in ("echo", "printf") or command.in_output:
            continue
        for word in command.argv[:12]:
            match = _NAMES[arch].search(word.text)
            if match and (
                word.tail.endswith((".sif", ".sqsh", ".simg", "activate")) or "python" in word.text
            ):
                yield Match(
                    job.document,
                    word.span,
                    f"{word.text!r} is named for {match.group()}, and the nodes of {job.site.name} are {arch}.",
                )
                return


RULE = Rule(
    code="RK126",
    name="wrong-arch",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A container image or an environment is named for another processor than that of the site's compute nodes.",
    why="Its programs do not start there: Exec format error (nanoporetech/dorado#1506).",
    fix="Build it on a compute node, or take the image for that processor.",
    find=find,
    fires=(
        """--- site.json
{"name": "olivia", "scheduler": "slurm", "node": {"arch": "aarch64"}}
--- job.sh
#!/bin/bash
#SBATCH --nodes=1
apptainer exec --nv /images/pytorch_x86_64.sif python train.py
""",
        """--- site.json
{"name": "olivia", "scheduler": "slurm", "node": {"arch": "aarch64"}}
--- job.sh
#!/bin/bash
#SBATCH --nodes=1
source venv-amd64/bin/activate
python train.py
""",
    ),
    silent=(
        """--- site.json
{"name": "olivia", "scheduler": "slurm", "node": {"arch": "aarch64"}}
--- job.sh
#!/bin/bash
#SBATCH --nodes=1
apptainer exec --nv /images/pytorch_arm64.sif python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1
apptainer exec --nv /images/pytorch.sif python train.py
""",
    ),
)
