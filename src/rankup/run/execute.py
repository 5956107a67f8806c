"""``execute``: run a job here and now. On this machine, as one of several nodes, or on a whole allocation."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from rankup.core.files import make_folder
from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.run import handshake
from rankup.run.agents import run_agents
from rankup.run.allocation import Allocation, detect_allocation
from rankup.run.attempts import begin_attempt, unwritable_error
from rankup.run.disagreement import NodeInfo
from rankup.run.endpoint import agreed_endpoint
from rankup.run.header import header
from rankup.run.interrupts import Interrupted, Interrupts
from rankup.run.job import LocalJob, Result, SilentView, View
from rankup.run.job_files import describe
from rankup.run.job_log import recorded
from rankup.run.node import run_node
from rankup.run.outcome import of_agents, of_node, write_outcome
from rankup.run.resolve import Resolved, resolve

Begun = Callable[[RunDir, str], None]

__all__ = ["LocalJob", "Result", "SilentView", "View", "execute"]


def execute(job: LocalJob, view: View, *, debug: bool = False, begun: Begun | None = None) -> Result:
    """Run ``job`` to its end and say how it ended; no process of it is left.

    A failed run is a ``Result`` with code 1 and its error; what keeps a run from starting (wrong usage, no torch,
    nodes that do not agree) is raised as a ``RankupError``. ``debug`` shows also what is normally summarised. ``begun``
    is called before the first process starts, with the run directory and a line about processes and devices.
    """
    begun = begun or _silently
    started = time.monotonic()
    allocation = detect_allocation(os.environ) if job.nnodes is None else None
    resolved = resolve(job, os.environ)
    make_folder(job.runs_root, purpose="runs directory")
    with Interrupts() as interrupts:
        if allocation is not None and allocation.needs_fan_out:
            return _on_allocation(job, resolved, allocation, interrupts, view, started, begun)
        if resolved.nnodes > 1:
            assert resolved.endpoint is not None

            def interrupted() -> bool:
                return interrupts.first is not None

            where = (resolved.endpoint, resolved.node_rank, job.run_dir, job.rdzv_timeout, interrupted)
            with agreed_endpoint(*where) as endpoint:
                resolved = replace(resolved, endpoint=endpoint)
                return _as_one_node(job, resolved, interrupts, view, started, begun, debug=debug)
        run = _begin(job, resolved)
        begun(run, header(resolved))
        with recorded(view, run) as view:
            ended = run_node(job, resolved, run, run.path.name, interrupts, view, debug=debug)
        return of_node(job, resolved, run, ended, interrupts, time.monotonic() - started)


def _on_allocation(
    job: LocalJob,
    resolved: Resolved,
    allocation: Allocation,
    interrupts: Interrupts,
    view: View,
    started: float,
    begun: Begun,
) -> Result:
    run = _begin(job, resolved)
    begun(run, f"{len(allocation.hosts)} nodes of the allocation")
    with recorded(view, run) as view:
        code = run_agents(job, allocation, run, interrupts, view)
    return of_agents(allocation, run, code, interrupts, time.monotonic() - started)


def _as_one_node(
    job: LocalJob,
    resolved: Resolved,
    interrupts: Interrupts,
    view: View,
    started: float,
    begun: Begun,
    *,
    debug: bool,
) -> Result:
    """By hand, or started by the fan-out: the nodes meet first, so that what does not fit together is said."""
    assert resolved.endpoint is not None
    me = NodeInfo(
        resolved.node_rank, resolved.nnodes, resolved.nproc, socket.gethostname(), _version_of("torch")
    )
    note = partial(view.line, None, "err")
    run = RunDir(job.run_dir.absolute()) if job.run_dir is not None else None
    if resolved.node_rank == 0 and run is None:
        run = _begin(job, resolved)
    try:
        if run is not None and resolved.node_rank == 0:
            agreement = handshake.host(
                me, resolved.endpoint, run.path.name, job.rdzv_timeout, note, interrupts.check
            )
        else:
            agreement = handshake.join(me, resolved.endpoint, job.rdzv_timeout, note, interrupts.check)
    except Interrupted as interrupted:
        write_outcome(run, "failed", {"outcome": "failed", "exit_code": 128 + interrupted.signum})
        seconds = time.monotonic() - started
        return Result(128 + interrupted.signum, run or RunDir(job.runs_root), None, None, seconds)
    except RankupError as error:
        write_outcome(run, "failed", {"outcome": "failed", **error.as_dict()})
        raise
    for line in agreement.notes:
        note(line)
    if run is None:
        run = _shared_or_own(job.runs_root.absolute() / resolved.name / agreement.run_id)
    begun(run, header(resolved))
    with recorded(view, run if resolved.node_rank == 0 and job.run_dir is None else None) as view:
        ended = run_node(job, resolved, run, agreement.run_id, interrupts, view, debug=debug)
    return of_node(job, resolved, run, ended, interrupts, time.monotonic() - started)


def _silently(run: RunDir, said: str) -> None:
    pass


def _begin(job: LocalJob, resolved: Resolved) -> RunDir:
    run = begin_attempt(job, resolved.name)
    try:
        describe(job, resolved, run)
    except OSError as error:
        if job.resume is None:
            shutil.rmtree(run.path, ignore_errors=True)
        raise unwritable_error(run, error) from error
    return run


def _shared_or_own(path: Path) -> RunDir:
    """Node 0's run directory where the file system is shared, one of the same name elsewhere."""
    for part in (path, path / "logs", path / "records"):
        make_folder(part, mode=0o700, purpose="run directory")
    return RunDir(path)


def _version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
