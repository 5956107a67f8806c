"""``job.toml`` and ``job.sh`` of a run: what it was asked to do, for people and for doing it again."""

from __future__ import annotations

import os
import sys

from rankup.core import shell
from rankup.core.files import write_atomic
from rankup.core.rundir import RunDir
from rankup.resolve.job_toml import job_toml
from rankup.resolve.resolved import Resolved
from rankup.spec.jobspec import JobSpec


def write_job_files(job: Resolved, run: RunDir) -> None:
    """Write both files into ``run``, for its owner's eyes: arguments may hold secrets."""
    # An argument that is no text can be run, and TOML cannot hold it.
    write_atomic(run.path / "job.toml", job_toml(job).encode("utf-8", "replace"), mode=0o600)
    write_atomic(run.path / "job.sh", os.fsencode(job_script(job.spec)), mode=0o700)


def job_script(spec: JobSpec) -> str:
    """Bash that runs the job again, as a run of its own."""
    options = [f"--nproc-per-node={spec.nproc_per_node}", f"--max-restarts={spec.max_restarts}"]
    options += [f"--name={spec.name}", f"--runs-root={spec.runs_root}"]
    if spec.rdzv_endpoint:
        options += [f"--nnodes={spec.nodes}", f"--node-rank={spec.node_rank}"]
        options += [f"--rdzv-endpoint={spec.rdzv_endpoint}"]
    options += [] if spec.threads is None else [f"--threads={spec.threads}"]
    options += [] if spec.python == sys.executable else [f"--python={spec.python}"]
    options += [] if spec.monitor else ["--no-monitor"]
    exports = "".join(f"export {shell.quote([f'{k}={v}'])}\n" for k, v in spec.env.items())
    command = shell.quote([sys.executable, "-m", "rankup", "run", *options, "--", *spec.command])
    return f"#!/usr/bin/env bash\nset -eu\ncd {shell.quote([str(spec.folder)])}\n{exports}exec {command}\n"
