"""A continued line that is not continued."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job.job import Job
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    if job.crlf:  # each line ends so, and RK133 says it
        return
    for span in job.blanks_after_backslash:
        if job.document.text[span.end :].lstrip().startswith("("):  # nothing continues a command so: a remark
            continue
        yield Match(
            job.document,
            Span(span.start - 1, span.end),
            "A blank follows this backslash, so the command ends here.",
            (Edit(span, ""),),
        )


RULE = Rule(
    code="RK136",
    name="blank-after-backslash",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="A backslash that is to continue a command is followed by a blank.",
    why="Only a backslash right before the line's end continues it: the rest of the options is a command of its own.",
    fix="Remove the blank.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        "#!/bin/bash\n#SBATCH --nodes=1\ntorchrun --standalone --nproc_per_node=4 \\ \n  train.py --epochs 3\n",
        "#!/bin/bash\n#SBATCH --nodes=1\nsrun python train.py \\\n  --lr 0.1 \\  \n  --epochs 3\n",
    ),
    silent=(
        "#!/bin/bash\n#SBATCH --nodes=1\ntorchrun --standalone --nproc_per_node=4 \\\n  train.py --epochs 3\n",
        "#!/bin/bash\r\n#SBATCH --nodes=1\r\nsrun python train.py \\\r\n  --lr 0.1\r\n",
    ),
)
