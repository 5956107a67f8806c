"""How an attempt of a run begins: its directory, what it was asked to do, and a line that says who runs it.

``attempts`` in the run directory has a line for each start: number, the process that started it (``PID.START@HOST``),
epoch seconds, host. So a run that was not submitted is looked at, cancelled and resumed as one that was (see
``attempts``).
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
from pathlib import Path

import psutil

from rankup.core import shell
from rankup.core.files import locked, write_atomic, writing_to
from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.resolve.job_toml import job_toml
from rankup.resolve.resolved import Resolved
from rankup.run.failure import ATTEMPT
from rankup.run.markers import ATTEMPTS, RESET_MARKERS, read_markers
from rankup.spec.jobspec import JobSpec

# What an attempt leaves and the next one must not find; snapshots, records and logs are kept.
_OF_ONE_ATTEMPT = (*RESET_MARKERS, "error.json", "listening", "init-file")


def begin_attempt(job: Resolved, resume: Path | None) -> RunDir:
    """The directory of a new run, or ``resume``, that of one, ready for another attempt; the attempt is noted in it."""
    spec = job.spec
    run = RunDir.create(spec.runs_root, spec.name) if resume is None else RunDir(resume.absolute())
    try:
        with writing_to(run.path, "run directory"), locked(run.path / ATTEMPTS):
            if resume is not None:
                _check_over(run)
                _clear(run)
            _note(run)
            # For its owner's eyes: arguments may hold secrets. TOML cannot hold one that is not text.
            write_atomic(run.path / "job.toml", job_toml(job).encode("utf-8", "replace"), mode=0o600)
            write_atomic(run.path / "job.sh", os.fsencode(job_script(spec)), mode=0o700)
    except RankupError:
        if resume is None:
            shutil.rmtree(run.path, ignore_errors=True)
        raise
    return run


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


def _check_over(run: RunDir) -> None:
    from rankup.run.attempts import living_process
    from rankup.schedulers.local.process import elsewhere

    if owner := living_process(run):
        where = elsewhere(owner)
        raise RankupError(
            "still-running",
            f"the run is not over: process {owner.partition('.')[0]}"
            + (f" on {where}" if where else "")
            + " has it",
            context=str(run.path),
            hint=f"wait for its end, or first: rankup cancel {run.path}",
        )
    if run.outcome() == "done":
        raise RankupError(
            "already-done",
            "the run is done: there is nothing to resume",
            context=str(run.path),
            hint="leave --resume out to run it again from the beginning",
        )


def _clear(run: RunDir) -> None:
    for name in _OF_ONE_ATTEMPT:
        (run.path / name).unlink(missing_ok=True)
    for path in (*run.path.glob("node-*.json"), *run.path.glob("trained-alone-*")):
        path.unlink()
    number = read_markers(run.path).attempts + 1
    line = f"{ATTEMPT} {number}, {time.strftime('%Y-%m-%d %H:%M:%S')} {'=' * 20}\n"
    for pattern in ("*.out", "*.err", "job.log"):
        for path in run.logs.glob(pattern):
            with path.open("ab") as file:
                file.write(line.encode())


def _note(run: RunDir) -> None:
    with (run.path / ATTEMPTS).open("a+") as file:
        file.seek(0)
        number = len(file.read().splitlines()) + 1
        host, pid = socket.gethostname(), os.getpid()
        started = int(psutil.Process().create_time())
        file.write(f"{number} {pid}.{started}@{host} {int(time.time())} {host}\n")
