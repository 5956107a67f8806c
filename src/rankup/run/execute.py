"""``execute``: run a job here and now. On this machine, as one of several nodes, or on a whole allocation."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.resolve.resolved import Resolved
from rankup.run.allocation import allocation_of
from rankup.run.attempts import Attempt, JobThatSaved, begin_attempt
from rankup.run.environment import for_processes, header
from rankup.run.interrupts import Interrupted, Interrupts
from rankup.run.node import run_node
from rankup.run.outcome import Result, of_agents, of_node, write_outcome
from rankup.run.view import SilentView, View, recorded

__all__ = ["Result", "SilentView", "View", "execute"]


def _silently(run: RunDir, said: str) -> None:
    pass


def execute(
    job: Resolved,
    view: View,
    *,
    run_dir: Path | None = None,
    resume: Path | None = None,
    terminal: bool = False,
    debug: bool = False,
    closed_input: bool = False,
    begun: Callable[[RunDir, str], None] = _silently,
) -> Result:
    """Run ``job`` to its end and say how it ended; no process of it is left.

    ``run_dir`` is the directory of a run that exists already and that several nodes share: this is one of them, and its
    head speaks for all. ``resume`` is the directory of a run which this is another attempt of. ``terminal`` hands a
    single process our terminal, for a debugger. ``debug`` shows also what is normally summarised. ``closed_input``: no
    process can read from ours. ``begun`` is called before the first process starts, with the run directory and a line
    about processes and devices.

    A failed run is a ``Result`` with code 1 and its error; what keeps a run from starting (wrong usage, no torch,
    nodes that do not agree) is raised as a ``RankupError``.
    """
    saved = JobThatSaved.of(resume)
    result = _execute(job, view, run_dir, resume, terminal, debug, closed_input, begun)
    if saved is not None and result.error is not None:
        saved.put_back(result.run)
    return result


def _execute(
    job: Resolved,
    view: View,
    run_dir: Path | None,
    resume: Path | None,
    terminal: bool,
    debug: bool,
    closed_input: bool,
    begun: Callable[[RunDir, str], None],
) -> Result:
    started = time.monotonic()
    allocation = allocation_of(job)
    with Interrupts() as interrupts, ExitStack() as stack:
        if allocation is not None:
            from rankup.run.agents import environment, run_agents

            job = allocation.taken_by(job)
            run = begin_attempt(job, resume)
            begun(run, f"{allocation} nodes of the allocation")
            shown = stack.enter_context(recorded(view, run))
            attempt = Attempt(job, run, environment(job, allocation), shown, interrupts, started)
            return of_agents(attempt, allocation, run_agents(attempt, allocation))

        here = RunDir(run_dir.absolute()) if run_dir is not None else None
        if job.spec.endpoint is not None:
            from rankup.run.meeting import met, require_port

            require_port(job.spec.endpoint, here)
        if here is None and job.spec.node_rank == 0:
            here = begin_attempt(job, resume)
        try:
            if job.spec.endpoint is not None:
                job, here = stack.enter_context(met(job, here, view, interrupts))
        except Interrupted as interrupted:
            code = 128 + interrupted.signum
            write_outcome(here, "failed", {"outcome": "failed", "exit_code": code})
            return Result(code, here or RunDir(job.spec.runs_root), None, None, time.monotonic() - started)
        except RankupError as error:
            write_outcome(here, "failed", {"outcome": "failed", **error.as_dict()})
            raise
        assert here is not None  # several nodes have an endpoint, as `resolve_here` requires it
        env = for_processes(os.environ, job.spec, here)
        begun(here, header(job.spec, env))
        agent = run_dir is not None
        shown = stack.enter_context(recorded(view, None if agent or job.spec.node_rank else here))
        attempt = Attempt(job, here, env, shown, interrupts, started, agent, terminal, debug, closed_input)
        return of_node(attempt, run_node(attempt))
