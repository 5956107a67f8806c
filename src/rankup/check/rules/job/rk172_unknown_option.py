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

_SYNTAX = re.compile(r"[{}<>$]")  # of templates
_LONG = re.compile(r"--([a-z][a-z_-]+)(?==|\s|$)")


def find(job: Job) -> Iterator[Match]:
    yield from _of_launchers(job)
    sbatch, srun = grammar_of("sbatch"), grammar_of("srun")
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
            elif not candidates and srun.beginnings(name):
                said = f"sbatch has no option --{name}: it is one of srun."
                yield Match(job.document, directive.span, said, (Edit(directive.span, ""),))
                continue
            elif not candidates and near:
                said = f"sbatch has no option --{name}; {' and '.join(f'--{option}' for option in near)} "
                said += "is near." if meant else "are near."
            else:
                continue
            yield Match(job.document, span, said, (Edit(span, f"--{meant}"),) if meant else ())


def _of_launchers(job: Job) -> Iterator[Match]:
    """Options of torchrun with a slip of the pen: argparse refuses them."""
    names = grammar_of("torchrun").names
    for launch in job.launches:
        for word in launch.unknown if launch.is_torchrun else ():
            name = word.head.partition("=")[0].lstrip("-")
            near = [option for option in names if is_slip(name, option)]
            if len(near) == 1 and word.head.startswith("--") and not _SYNTAX.search(name):
                start = word.span.start
                span = Span(start, start + len(word.head.partition("=")[0]))
                edits = (Edit(span, f"--{near[0]}"),) if job.document[span] == f"--{name}" else ()
                yield Match(
                    job.document, span, f"torchrun has no option --{name}; --{near[0]} is near.", edits
                )


RULE = Rule(
    code="RK172",
    name="unknown-option",
    severity=Severity.ERROR,
    confidence=Confidence.LIKELY,
    what="An option of sbatch or torchrun is misspelt, or shortened so far that it may be several.",
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
    ),
    silent=(
        """#!/bin/bash
#SBATCH --nodes=1 --clusters=gpu
#SBATCH --cluster=gpu
srun --cpu-bind=cores torchrun --nnodes=1 --nproc-per-node=4 --max-restarts 2 train.py --nproc_per_nod=1
""",
        """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-nod=4
#SBATCH --gpus-per-no=4
#SBATCH --container-image=torch.sqsh
#SBATCH --{{ option }}=1
srun python train.py
#SBATCH --tmie=1
""",
    ),
)
