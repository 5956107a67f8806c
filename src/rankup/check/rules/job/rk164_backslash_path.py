r"""A path with backslashes: the shell takes them away."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity

# Two names with a backslash between them at least, or one before a file with a suffix; nothing that patterns have.
_PATH = re.compile(r"(?:[A-Za-z]:|\.{1,2}|[\w.-]+)(?:\\[\w.-]+)*\\[\w-]+(?:\.[A-Za-z]\w{0,4})")
_PROGRAMS = (
    "python",
    "python3",
    "torchrun",
    "accelerate",
    "deepspeed",
    "srun",
    "mpirun",
    "mpiexec",
    "cd",
    "source",
    "cp",
)


def find(job: Job) -> Iterator[Match]:
    for command in job.commands:
        if command.name not in _PROGRAMS:
            continue
        for word in command.argv[1:]:
            text = job.document[word.span]
            path = text.rpartition("=")[2]
            if _PATH.fullmatch(path) and len(text) < 300:
                right = text.replace("\\", "/")
                yield Match(
                    job.document,
                    word.span,
                    f"The shell takes the backslashes of {path} away: {command.name} gets {path.replace(chr(92), '')}",
                    (Edit(word.span, right),),
                )


RULE = Rule(
    code="RK164",
    name="backslash-path",
    severity=Severity.ERROR,
    confidence=Confidence.LIKELY,
    what="A path is written with backslashes, as on Windows.",
    why="Outside of quotes a backslash only protects the next character: data\\train.py becomes datatrain.py.",
    fix="Write the path with slashes.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        "#!/bin/bash\n#SBATCH --nodes=1\npython src\\train.py\n",
        "#!/bin/bash\n#SBATCH --nodes=1\nsrun python train.py --config=configs\\large\\model.yaml\n",
    ),
    silent=(
        "#!/bin/bash\n#SBATCH --nodes=1\npython src/train.py --pattern '\\w+\\d.txt'\n",
        "#!/bin/bash\n#SBATCH --nodes=1\npython my\\ folder/train.py --name a\\_b\n",
    ),
)
