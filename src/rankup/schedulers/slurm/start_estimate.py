"""When a job would start, by ``sbatch --test-only``: SLURM plans the job like its backfill, and submits nothing."""

from __future__ import annotations

import re
import shlex
from datetime import datetime

from rankup.core.shell import Completed
from rankup.errors import RankupError
from rankup.schedulers.error_table import explain_error
from rankup.schedulers.slurm.directives import resources
from rankup.schedulers.slurm.errors import SUBMIT
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec

_STARTS = re.compile(r"to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)")


def start_command(spec: JobSpec, site: Site) -> list[str]:
    raw = [token for directive in spec.directives for token in shlex.split(directive)]
    # Its answer has the format that this variable asks for.
    plain = ["env", "SLURM_TIME_FORMAT=standard"]
    return [*plain, "sbatch", "--test-only", *resources(spec, site), *raw, "--wrap=true"]


def read_start(done: Completed, spec: JobSpec) -> float:
    """From ``sbatch: Job 3 to start at 2026-11-22T15:03:56 using 8 processors …``, the cluster's local time."""
    if done.code != 0:
        raise explain_error(done, SUBMIT, "sbatch", spec)
    found = _STARTS.search(done.out + done.err)
    if found is None:
        raise RankupError(
            "start-unknown", "sbatch --test-only names no time", context=(done.err or done.out).strip()
        )
    return datetime.fromisoformat(found[1]).timestamp()
