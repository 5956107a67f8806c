"""Nodes that were started one by one meet before their first process starts: one port, one run, equal settings.

In an allocation node 0 takes a port that nobody else has, and writes it into the run directory. By hand it is given.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from rankup.core.endpoint import Endpoint
from rankup.core.files import make_folder, write_atomic
from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.findings.text import text_lines
from rankup.resolve.resolved import Resolved
from rankup.run.disagreement import NodeInfo
from rankup.run.handshake import Handshake
from rankup.run.interrupts import Interrupts
from rankup.run.view import View
from rankup.spec.jobspec import JobSpec
from rankup.world.ports import hold_port

_PORT = "rendezvous-port"


def require_port(endpoint: Endpoint, run: RunDir | None) -> None:
    """An error where the endpoint has no port, and there is no run directory to find it in."""
    if endpoint.port == 0 and run is None:
        raise RankupError(
            "bad-rdzv-endpoint",
            f"--rdzv-endpoint {endpoint} has no port: use one between 1024 and 32767 that is free on node 0",
        )


def forget_port(run: RunDir) -> None:
    """No port of an earlier attempt is taken for this one's."""
    (run.path / _PORT).unlink(missing_ok=True)


@contextlib.contextmanager
def met(
    job: Resolved, run: RunDir | None, view: View, interrupts: Interrupts
) -> Iterator[tuple[Resolved, RunDir]]:
    """``job`` with its port and the run of all nodes, after they have met. The body runs while the port is held.

    ``run`` is None on a node that gets the run from node 0. Raises ``nodes-missing`` if a node does not come within
    ``rdzv_timeout`` seconds, and ``Interrupted``.
    """
    spec = job.spec
    endpoint = spec.endpoint
    assert endpoint is not None
    with contextlib.ExitStack() as stack:
        if endpoint.port == 0 and run is not None:
            if spec.node_rank == 0:
                port = stack.enter_context(hold_port()).getsockname()[1]
                write_atomic(run.path / _PORT, f"{port}\n", mode=0o600)
            else:
                port = _read(run.path / _PORT, spec.rdzv_timeout, interrupts)
            endpoint = Endpoint(endpoint.host, port)
            spec = spec.model_copy(update={"rdzv_endpoint": str(endpoint)})
        note = partial(view.line, None, "err")
        me = NodeInfo(
            spec.node_rank, spec.nodes, spec.nproc_per_node, socket.gethostname(), _version_of("torch")
        )
        handshake = Handshake(me, endpoint, spec.rdzv_timeout, note, interrupts.check)
        hosts = run is not None and spec.node_rank == 0
        agreement = handshake.host(run.path.name) if run is not None and hosts else handshake.join()
        for line in text_lines(agreement.findings):
            note(line)
        yield replace(job, spec=spec), run or _same_run(spec, agreement.run_id)


def _same_run(spec: JobSpec, run_id: str) -> RunDir:
    """Node 0's run directory if the file system is shared, else one of the same name."""
    run = RunDir(spec.runs_root / spec.name / run_id)
    make_folder(spec.runs_root, purpose="runs directory")
    for part in (run.path, run.logs, run.records):
        make_folder(part, mode=0o700, purpose="run directory")
    return run


def _read(path: Path, timeout: float, interrupts: Interrupts) -> int:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        interrupts.check()
        os.listdir(path.parent)  # noqa: PTH208  # has an NFS client look again
        if path.exists():
            return int(path.read_text())
        time.sleep(0.2)
    raise RankupError(
        "nodes-missing",
        f"node 0 did not write its port within {timeout:g} s",
        context=str(path),
        hint="do all nodes see the run directory? --runs-root has to be on a file system that they share",
        exit_code=1,
    )


def _version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
