"""A page that shows one job script and submits another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from rankup.check.document import Span
from rankup.check.facts.job.job import Job
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    shown, submitted = job.document.name, job.document.submitted
    if not shown or not submitted or not job.scheduler:
        return
    if PurePosixPath(shown).name != PurePosixPath(submitted).name:
        first = job.document.line(0)
        yield Match(
            job.document,
            Span(0, max(1, len(first))),
            f"The page shows {shown}, and submits {submitted}",
        )


RULE = Rule(
    code="RK165",
    name="page-submits-another",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="A page shows one job script under a name, and submits a script of another name.",
    why="Who follows the page gets an error from sbatch or qsub, or starts an older script.",
    fix="Use one name for the script in the whole page.",
    find=find,
    fires=(
        """--- page.md
Save this as `train.sh`:

```bash
#!/bin/bash
#SBATCH --nodes=1
python train.py
```

Then submit it:

```console
$ sbatch job.sh
```
""",
        """--- page.md
The script `run.pbs`:

```
#!/bin/bash
#PBS -l select=1:ncpus=4
cd $PBS_O_WORKDIR
python train.py
```

    qsub -q gpu train.pbs
""",
    ),
    silent=(
        """--- page.md
Save this as `train.sh`:

```bash
#!/bin/bash
#SBATCH --nodes=1
python train.py
```

```console
$ sbatch --time=1:00:00 scripts/train.sh
```
""",
        """--- page.md
A first script:

```bash
#!/bin/bash
#SBATCH --nodes=1
python train.py
```

Larger ones are in the repository: `sbatch large.sh`, then

```console
$ sbatch large.sh
```
""",
    ),
)
