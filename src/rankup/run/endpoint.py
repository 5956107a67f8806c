"""The port of an allocation's nodes: node 0 takes one that nobody else has, and writes it into the run directory."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from rankup.core.endpoint import Endpoint
from rankup.core.files import write_atomic
from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.run.interrupts import Interrupts
from rankup.spec.jobspec import JobSpec
from rankup.world.ports import hold_port

_NAME = "rendezvous-port"


@contextlib.contextmanager
def with_port(
    spec: JobSpec, endpoint: Endpoint, run: RunDir | None, interrupts: Interrupts
) -> Iterator[JobSpec]:
    """``spec`` with the port that node 0 takes now and holds while the body runs; ``endpoint`` is its own, without one.

    Raises ``nodes-missing`` if node 0 does not write it within ``rdzv_timeout`` seconds. After an interrupt the port
    may still be 0.
    """
    if run is None:
        raise RankupError(
            "bad-rdzv-endpoint",
            f"--rdzv-endpoint {endpoint} has no port: use one between 1024 and 32767 that is free on node 0",
        )
    file = run.path / _NAME
    with contextlib.ExitStack() as stack:
        if spec.node_rank == 0:
            port = stack.enter_context(hold_port()).getsockname()[1]
            write_atomic(file, f"{port}\n", mode=0o600)
        else:
            port = _read(file, spec.rdzv_timeout, interrupts)
        yield spec.model_copy(update={"rdzv_endpoint": str(Endpoint(endpoint.host, port))})


def forget(run: Path) -> None:
    """No port of an earlier attempt is taken for this one's."""
    (run / _NAME).unlink(missing_ok=True)


def _read(path: Path, timeout: float, interrupts: Interrupts) -> int:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if interrupts.first is not None:
            return 0
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
