"""``execute``: run a job here and now. On this machine, as one of several nodes, or on a whole allocation."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rankup.core.files import make_folder
from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.findings.text import text_lines
from rankup.resolve.resolved import FLAG, Resolved
from rankup.run import handshake
from rankup.run.agents import run_agents
from rankup.run.allocation import Allocation, detect_allocation
from rankup.run.attempts import begin_attempt, unwritable_error
from rankup.run.disagreement import NodeInfo
from rankup.run.endpoint import agreed_endpoint, given_endpoint
from rankup.run.header import header
from rankup.run.interrupts import Interrupted, Interrupts
from rankup.run.job_files import write_job_files
from rankup.run.job_log import recorded
from rankup.run.node import run_node
from rankup.run.outcome import Result, of_agents, of_node, write_outcome
from rankup.run.view import SilentView, View

Begun = Callable[[RunDir, str], None]

__all__ = ["Result", "SilentView", "View", "execute"]


def execute(
    job: Resolved,
    view: View,
    *,
    run_dir: Path | None = None,
    resume: Path | None = None,
    terminal: bool = False,
    debug: bool = False,
    begun: Begun | None = None,
) -> Result:
    """Run ``job`` to its end and say how it ended; no process of it is left.

    ``run_dir`` is the directory of a run that exists already and that several nodes share: this is one of them, and its
    head speaks for all. ``resume`` is the directory of a run which this is another attempt of. ``terminal`` hands a
    single process our terminal, for a debugger. ``debug`` shows also what is normally summarised. ``begun`` is called
    before the first process starts, with the run directory and a line about processes and devices.

    A failed run is a ``Result`` with code 1 and its error; what keeps a run from starting (wrong usage, no torch,
    nodes that do not agree) is raised as a ``RankupError``.
    """
    started = time.monotonic()
    allocation = _allocation(job)
    endpoint = None if allocation else given_endpoint(job, agent=run_dir is not None)
    make_folder(job.spec.runs_root, purpose="runs directory")
    with Interrupts() as interrupts:
        how = _Execution(view, interrupts, started, run_dir, resume, terminal, debug, begun or _silently)
        if allocation is not None:
            return how.on_allocation(job, allocation)
        if endpoint is None:
            return how.on_this_machine(job)
        spec = job.spec
        met = agreed_endpoint(
            endpoint, spec.node_rank, run_dir, spec.rdzv_timeout, lambda: interrupts.first is not None
        )
        with met as endpoint:
            return how.as_one_node(job, endpoint)


def _allocation(job: Resolved) -> Allocation | None:
    """The allocation to run on; None to stay on this machine, or with machines that were started by hand."""
    spec = job.spec
    if job.asked("nodes") and (job.origin["nodes"] == FLAG or spec.nodes == 1 or spec.rdzv_endpoint):
        return None
    allocation = detect_allocation(os.environ)
    if allocation is None or not allocation.needs_fan_out:
        return None
    if job.asked("nodes") and spec.nodes != len(allocation.hosts):
        raise RankupError(
            "other-allocation",
            f"the job asks for {spec.nodes} nodes, and this allocation has {len(allocation.hosts)}",
            context=job.origin["nodes"],
            hint="an allocation of as many nodes, or another number in the job file; --nnodes 1 stays on this machine",
        )
    return allocation


@dataclass(frozen=True)
class _Execution:
    """What one call of ``execute`` has: who looks on, who interrupts, which run directory."""

    view: View
    interrupts: Interrupts
    started: float
    run_dir: Path | None
    resume: Path | None
    terminal: bool
    debug: bool
    begun: Begun

    def on_this_machine(self, job: Resolved) -> Result:
        run = self._begin(job)
        self.begun(run, header(job.spec))
        with recorded(self.view, run) as view:
            return self._node(job, None, run, run.path.name, view)

    def on_allocation(self, job: Resolved, allocation: Allocation) -> Result:
        spec = job.spec.model_copy(update={"nodes": len(allocation.hosts), "launcher": "torchrun"})
        origin = {**job.origin, "nodes": job.origin["nodes"] if job.asked("nodes") else "allocation"}
        job = replace(job, spec=spec, origin=origin)
        run = self._begin(job)
        self.begun(run, f"{len(allocation.hosts)} nodes of the allocation")
        with recorded(self.view, run) as view:
            code = run_agents(job, allocation, run, self.interrupts, view)
        return of_agents(allocation, run, code, self.interrupts, self._seconds())

    def as_one_node(self, job: Resolved, endpoint: tuple[str, int]) -> Result:
        """By hand, or started by the fan-out: the nodes meet first, so that what does not fit together is said."""
        spec = job.spec
        me = NodeInfo(
            spec.node_rank, spec.nodes, spec.nproc_per_node, socket.gethostname(), _version_of("torch")
        )
        note = partial(self.view.line, None, "err")
        run = RunDir(self.run_dir.absolute()) if self.run_dir is not None else None
        if spec.node_rank == 0 and run is None:
            run = self._begin(job)
        try:
            if run is not None and spec.node_rank == 0:
                agreement = handshake.host(
                    me, endpoint, run.path.name, spec.rdzv_timeout, note, self.interrupts.check
                )
            else:
                agreement = handshake.join(me, endpoint, spec.rdzv_timeout, note, self.interrupts.check)
        except Interrupted as interrupted:
            code = 128 + interrupted.signum
            write_outcome(run, "failed", {"outcome": "failed", "exit_code": code})
            return Result(code, run or RunDir(spec.runs_root), None, None, self._seconds())
        except RankupError as error:
            write_outcome(run, "failed", {"outcome": "failed", **error.as_dict()})
            raise
        for line in text_lines(agreement.findings):
            note(line)
        if run is None:
            run = _shared_or_own(spec.runs_root / spec.name / agreement.run_id)
        self.begun(run, header(spec))
        heads = spec.node_rank == 0 and self.run_dir is None
        with recorded(self.view, run if heads else None) as view:
            return self._node(job, endpoint, run, agreement.run_id, view)

    def _node(
        self, job: Resolved, endpoint: tuple[str, int] | None, run: RunDir, run_id: str, view: View
    ) -> Result:
        ended = run_node(
            job.spec, endpoint, run, run_id, self.interrupts, view, terminal=self.terminal, debug=self.debug
        )
        agent = self.run_dir is not None
        return of_node(job.spec, run, ended, self.interrupts, self._seconds(), agent=agent)

    def _begin(self, job: Resolved) -> RunDir:
        run = begin_attempt(job.spec, self.resume)
        try:
            write_job_files(job, run)
        except OSError as error:
            if self.resume is None:
                shutil.rmtree(run.path, ignore_errors=True)
            raise unwritable_error(run, error) from error
        return run

    def _seconds(self) -> float:
        return time.monotonic() - self.started


def _silently(run: RunDir, said: str) -> None:
    pass


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
