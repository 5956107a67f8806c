"""A directive asks for an option that sbatch does not have."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job.directives import directives_of
from rankup.check.facts.job.job import Job
from rankup.check.facts.job.typos import is_slip
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity
from rankup.launch_grammar.options import grammar_of

_LONG = re.compile(r"--([a-z][a-z_-]+)(?==|\s|$)")


def find(job: Job) -> Iterator[Match]:
    sbatch = grammar_of("sbatch")
    for line in job.lines:
        if line.scheduler != "slurm" or line.late:
            continue
        for directive in directives_of(line):
            written = _LONG.match(job.document[directive.span])
            if written is None:
                continue
            name = written.group(1)
            span = Span(directive.span.start, directive.span.start + written.end())
            candidates = sbatch.beginnings(name)
            if len(candidates) == 1:
                continue
            near = [option for option in sbatch.names if is_slip(name, option)]
            meant = near[0] if len(near) == 1 else ""
            if len(candidates) > 1:
                several = ", ".join(f"--{candidate}" for candidate in candidates[:4])
                more = ", …" if len(candidates) > 4 else ""
                said = f"--{name} may be each of {several}{more}: sbatch refuses it."
                meant = meant if meant in candidates else ""
            elif not candidates and meant:
                said = f"sbatch has no option --{name}; --{meant} is near."
            else:
                continue
            yield Match(job.document, span, said, (Edit(span, f"--{meant}"),) if meant else ())


RULE = Rule(
    code="RK172",
    name="unknown-option",
    severity=Severity.ERROR,
    confidence=Confidence.LIKELY,
    what="An option of sbatch is misspelt, or shortened so far that it may be several.",
    why="The script is refused when it is submitted. An unknown option that is near no other may be the site's own.",
    fix="Write the whole option.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
#SBATCH --tmie=01:00:00
srun --ntasks-per-node=4 python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1 --ntask=4
srun python train.py
""",
        """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --cpu-per-task 8
srun python train.py
""",
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-nod=4
#SBATCH --gpus-per-no=4
#SBATCH --container-image=torch.sqsh
#SBATCH --{{ option }}=1
srun python train.py
#SBATCH --tmie=1
""",
        """#!/bin/bash
#PBS -l select=1:ncpus=8
python train.py --tmie=1
""",
    ),
)
