"""``execute``: run a job here and now. On this machine, as one of several nodes, or on a whole allocation."""

from __future__ import annotations

import importlib.metadata
import os
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from rankup.core.files import make_folder
from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.resolve.resolved import FLAG, Resolved
from rankup.run.allocation import Allocation, detect_allocation
from rankup.run.begin import begin_attempt
from rankup.run.environment import for_processes, header
from rankup.run.interrupts import Interrupted, Interrupts
from rankup.run.node import run_node
from rankup.run.outcome import Result, of_agents, of_node, write_outcome
from rankup.run.view import SilentView, View, recorded
from rankup.spec.jobspec import JobSpec

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
    started = time.monotonic()
    allocation = _allocation(job)
    make_folder(job.spec.runs_root, purpose="runs directory")
    with Interrupts() as interrupts, ExitStack() as stack:
        if allocation is not None:
            from rankup.run.agents import run_agents

            hosts = len(allocation.hosts)
            spec = job.spec.model_copy(update={"nodes": hosts, "launcher": "torchrun"})
            which = f"the first {hosts} of {allocation.of}" if allocation.of > hosts else f"{hosts}"
            origin = job.origin["nodes"] if "nodes" in job.asked else "allocation"
            job = replace(job, spec=spec, origin={**job.origin, "nodes": origin})
            run = begin_attempt(job, resume)
            begun(run, f"{which} nodes of the allocation")
            with recorded(view, run) as view:
                code = run_agents(job, allocation, run, interrupts, view)
            return of_agents(allocation, run, code, interrupts, time.monotonic() - started)

        spec, agent = job.spec, run_dir is not None
        here = RunDir(run_dir.absolute()) if run_dir is not None else None
        if spec.endpoint is not None and spec.endpoint.port == 0:
            from rankup.run.endpoint import with_port

            spec = stack.enter_context(with_port(spec, spec.endpoint, here, interrupts))
        if here is None and spec.node_rank == 0:
            here = begin_attempt(job, resume)
        try:
            run = _meet(spec, here, interrupts, view) if spec.endpoint or here is None else here
        except Interrupted as interrupted:
            code = 128 + interrupted.signum
            write_outcome(here, "failed", {"outcome": "failed", "exit_code": code})
            return Result(code, here or RunDir(spec.runs_root), None, None, time.monotonic() - started)
        except RankupError as error:
            write_outcome(here, "failed", {"outcome": "failed", **error.as_dict()})
            raise
        env = for_processes(os.environ, spec, run)
        begun(run, header(spec, env))
        with recorded(view, None if agent or spec.node_rank else run) as view:
            ended = run_node(
                spec, run, env, interrupts, view, terminal=terminal, debug=debug, closed_input=closed_input
            )
        return of_node(spec, run, ended, interrupts, time.monotonic() - started, agent=agent)


def _allocation(job: Resolved) -> Allocation | None:
    """The nodes of the allocation to run on; None to stay on this machine, or with machines started by hand.

    A job that asks for fewer nodes than there are gets the first ones.
    """
    spec, asked = job.spec, "nodes" in job.asked
    if asked and (spec.rdzv_endpoint or (spec.nodes == 1 and job.origin["nodes"] == FLAG)):
        return None
    allocation = detect_allocation(os.environ)
    if allocation is None:
        if spec.nodes > 1:
            raise RankupError(
                "no-allocation",
                f"the job asks for {spec.nodes} nodes, and this is not the shell of an allocation",
                context=job.origin["nodes"],
                hint="--nnodes 1 runs on this machine alone; rankup submit takes it to a cluster",
            )
        return None
    if asked and spec.nodes > len(allocation.hosts):
        raise RankupError(
            "other-allocation",
            f"the job asks for {spec.nodes} nodes, and this allocation has {len(allocation.hosts)}",
            context=job.origin["nodes"],
            hint="a larger allocation, or fewer nodes; --nnodes 1 stays on this machine",
        )
    if asked:
        allocation = allocation.first(spec.nodes)
    return allocation if allocation.needs_fan_out else None


def _meet(spec: JobSpec, run: RunDir | None, interrupts: Interrupts, view: View) -> RunDir:
    """The directory of the run, after the nodes have met: so that what does not fit together is found.

    ``run`` is None on a node that gets the run from node 0.
    """
    from rankup.findings.text import text_lines
    from rankup.run import handshake
    from rankup.run.disagreement import NodeInfo

    assert spec.endpoint is not None  # of several nodes, as `resolve_here` requires it
    torch = _version_of("torch")
    me = NodeInfo(spec.node_rank, spec.nodes, spec.nproc_per_node, socket.gethostname(), torch)
    note = partial(view.line, None, "err")
    if run is not None and spec.node_rank == 0:
        agreement = handshake.host(
            me, spec.endpoint, run.path.name, spec.rdzv_timeout, note, interrupts.check
        )
    else:
        agreement = handshake.join(me, spec.endpoint, spec.rdzv_timeout, note, interrupts.check)
    for line in text_lines(agreement.findings):
        note(line)
    if run is not None:
        return run
    # Node 0's run directory if the file system is shared, else one of the same name.
    path = spec.runs_root / spec.name / agreement.run_id
    for part in (path, path / "logs", path / "records"):
        make_folder(part, mode=0o700, purpose="run directory")
    return RunDir(path)


def _version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
