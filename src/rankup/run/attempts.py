"""The attempts of a run: how one begins, what is known of it while it goes on (``Attempt``), how the last one ended.

``attempts`` in the run directory has a line for each start: number, the process that started it (``PID.START@HOST``),
epoch seconds, host. So a run that was not submitted is looked at, cancelled and resumed as one that was.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from rankup.core import shell
from rankup.core.files import locked, write_atomic, writing_to
from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.resolve.job_toml import job_toml
from rankup.resolve.resolved import Resolved
from rankup.run.failure import ATTEMPT
from rankup.run.interrupts import Interrupts
from rankup.run.markers import ATTEMPTS, RESET_MARKERS, Markers, read_markers
from rankup.run.view import View
from rankup.spec.jobspec import JobSpec

if TYPE_CHECKING:
    from rankup.snapshots.layout import Entry

# What an attempt leaves and the next one must not find; snapshots, records and logs are kept.
_OF_ONE_ATTEMPT = (*RESET_MARKERS, "error.json", "listening", "init-file")


@dataclass(frozen=True)
class Attempt:
    """What is known when the first process starts, and does not change until the last one has ended.

    ``env`` is the environment of the processes. ``started`` as of ``time.monotonic``. ``agent``: this is one node of
    several that share ``run``, and the head of their allocation speaks for all. ``terminal``, ``debug`` and
    ``closed_input`` as of ``execute``.
    """

    job: Resolved
    run: RunDir
    env: Mapping[str, str]
    view: View
    interrupts: Interrupts
    started: float
    agent: bool = False
    terminal: bool = False
    debug: bool = False
    closed_input: bool = False

    @property
    def spec(self) -> JobSpec:
        return self.job.spec

    @property
    def seconds(self) -> float:
        """Wall time until now."""
        return time.monotonic() - self.started


@dataclass(frozen=True)
class JobThatSaved:
    """The job of a run that is resumed, if it has a snapshot. It stays the run's job if the next attempt fails before
    it has saved: other arguments that do not fit the snapshot are forgotten."""

    newest: Path
    files: Mapping[str, bytes]

    @classmethod
    def of(cls, resume: Path | None) -> JobThatSaved | None:
        newest = newest_snapshot(RunDir(resume)) if resume is not None else None
        if resume is None or newest is None:
            return None
        paths = [resume / name for name in ("job.toml", "job.sh")]
        return cls(newest.path, {path.name: path.read_bytes() for path in paths if path.is_file()})

    def put_back(self, run: RunDir) -> None:
        newest = newest_snapshot(run)
        if newest is not None and newest.path == self.newest:
            for name, text in self.files.items():
                write_atomic(run.path / name, text, mode=0o700 if name == "job.sh" else 0o600)


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
    options = [f"--nproc-per-node={spec.nproc_per_node}"]
    options += [f"--name={spec.name}", f"--runs-root={spec.runs_root}"]
    if spec.rdzv_endpoint:
        options += [f"--nnodes={spec.nodes}", f"--node-rank={spec.node_rank}"]
        options += [f"--rdzv-endpoint={spec.rdzv_endpoint}"]
    options += processes_as_options(spec, threads=spec.threads)
    exports = "".join(f"export {shell.quote([f'{k}={v}'])}\n" for k, v in spec.env.items())
    command = shell.quote([sys.executable, "-m", "rankup", "run", *options, "--", *spec.command])
    return f"#!/usr/bin/env bash\nset -eu\ncd {shell.quote([str(spec.folder)])}\n{exports}exec {command}\n"


def processes_as_options(spec: JobSpec, *, threads: int | None) -> list[str]:
    """How the processes of each node run, as options of ``rankup run``."""
    options = [f"--max-restarts={spec.max_restarts}"]
    options += [f"--numa-binding={spec.numa_binding}"] if spec.numa_binding else []
    options += [] if threads is None else [f"--threads={threads}"]
    options += [] if spec.python == sys.executable else [f"--python={spec.python}"]
    return options if spec.monitor else [*options, "--no-monitor"]


def _check_over(run: RunDir) -> None:
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


def attempts(run: RunDir) -> list[list[str]]:
    """The words of each line of ``attempts``."""
    try:
        lines = (run.path / ATTEMPTS).read_text().splitlines()
    except OSError:
        return []
    return [line.split() for line in lines]


def living_process(run: RunDir) -> str:
    """The process of the run's last attempt, if it has not ended; it may be one of another machine. "" if it has."""
    from rankup.schedulers.local.process import elsewhere, find

    if read_markers(run.path).final:
        return ""
    last = next((words[1] for words in reversed(attempts(run)) if len(words) > 1), "")
    return last if last and (elsewhere(last) or find(last)) else ""


def end_reason(run: RunDir, traces: Markers) -> str:
    """In a line, how the last attempt of a run ended that is not done."""
    if traces.outcome == "requeue":
        return "asked to stop, and saved"
    if traces.exit_code is None:
        return "cancelled" if traces.outcome == "cancelled" else "killed, or its machine went down"
    if traces.exit_code > 128:
        return f"ended by {signal.Signals(traces.exit_code - 128).name}"
    try:
        said = json.loads((run.path / "outcome.json").read_text()).get("message", "")
    except (OSError, ValueError):
        said = ""
    return said or f"exit code {traces.exit_code}"


def newest_snapshot(run: RunDir) -> Entry | None:
    """The snapshot that was saved last, of any training of the run; it is not verified here."""
    from rankup.snapshots.layout import entries, trainings

    try:
        found = [ours[-1] for root in trainings(run.path / "snapshots") if (ours := entries(root))]
        return max(found, key=lambda entry: entry.path.stat().st_mtime_ns, default=None)
    except OSError:  # deleted meanwhile
        return None
