"""A job script with the line ends of Windows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job import Job
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    if job.crlf and (job.scheduler or job.commands):
        end = job.document.text.find("\n")
        yield Match(
            job.document,
            Span(0, max(1, end if end >= 0 else len(job.document.text))),
            "The lines of this script end with CR LF, as on Windows.",
            tuple(Edit(Span(at.start(), at.end()), "") for at in re.finditer(r"\r(?=\n)", job.document.text)),
        )


RULE = Rule(
    code="RK133",
    name="crlf",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="The script has CR LF line ends.",
    why="Schedulers refuse it (sbatch: Batch script contains DOS line breaks; qsub: script contains cr, lf).",
    fix="Convert it: sed -i 's/\\r$//' job.sh (or dos2unix).",
    find=find,
    fires=(
        "#!/bin/bash\r\n#SBATCH --nodes=1\r\nsrun python train.py\r\n",
        "#!/bin/bash\r\n#PBS -l select=1:ncpus=4\r\ncd $PBS_O_WORKDIR\r\npython train.py\r\n",
    ),
    safety=Safety.SAFE,
    silent=(
        "#!/bin/bash\n#SBATCH --nodes=1\nsrun python train.py\n",
        "#!/bin/bash\n#PBS -l select=1:ncpus=4\ncd $PBS_O_WORKDIR\npython train.py\n",
    ),
)
