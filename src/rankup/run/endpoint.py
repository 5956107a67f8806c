"""Where several nodes meet: as given by hand; in an allocation node 0 takes a port that nobody else has, and says so in
the run directory."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rankup.core.files import write_atomic
from rankup.errors import RankupError
from rankup.resolve.resolved import Resolved
from rankup.world.ports import hold_port

# Stands in an agent's --rdzv-endpoint for the port that node 0 will take.
TO_BE_CHOSEN = 0
_NAME = "rendezvous-port"


def given_endpoint(job: Resolved, *, agent: bool) -> tuple[str, int] | None:
    """The endpoint of nodes that were started by hand, or by our head (``agent``); None for one node.

    Raises ``RankupError`` where the flags that say who is who are not complete.
    """
    spec = job.spec
    endpoint = (
        parse_endpoint(spec.rdzv_endpoint, TO_BE_CHOSEN if agent else 1) if spec.rdzv_endpoint else None
    )
    if spec.nodes == 1 and spec.node_rank == 0:
        return None
    given = {
        "--nnodes": job.asked("nodes"),
        "--node-rank": job.asked("node_rank"),
        "--rdzv-endpoint": endpoint is not None,
    }
    if not all(given.values()) or endpoint is None:
        by_file = job.origin.get("nodes", "").endswith(".toml")
        raise RankupError(
            "incomplete-nodes",
            f"nodes started by hand need {' and '.join(flag for flag, there in given.items() if not there)} as well",
            context=f"{spec.nodes} nodes: {job.origin['nodes']}",
            hint="--nnodes 1 runs on this machine alone; rankup submit takes it to a cluster"
            if by_file
            else "on each machine: rankup run --nnodes 2 --node-rank 0|1 --rdzv-endpoint HOST:PORT script.py, "
            "HOST being the machine of node rank 0",
        )
    if spec.node_rank >= spec.nodes:
        raise RankupError(
            "bad-node-rank",
            f"--node-rank {spec.node_rank} is not between 0 and {spec.nodes - 1}",
            context=f"--nnodes {spec.nodes}",
        )
    return endpoint


def parse_endpoint(text: str, least: int = 1) -> tuple[str, int]:
    """``HOST:PORT`` or ``[IPV6]:PORT``."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not re.fullmatch(r"\d{1,5}", port) or not least <= int(port) < 65536:
        raise RankupError(
            "bad-endpoint",
            f"{text!r} is not HOST:PORT",
            context="--rdzv-endpoint",
            hint="the address of node 0 and a free port on it, such as 10.0.0.1:29400",
        )
    host = host.strip("[]")
    if host in ("0.0.0.0", "::", "*"):
        raise RankupError(
            "bad-endpoint",
            f"{host!r} is no address that another node can reach",
            context="--rdzv-endpoint",
            hint="give the address of node 0 on the network that the nodes share",
        )
    return host, int(port)


@contextlib.contextmanager
def agreed_endpoint(
    endpoint: tuple[str, int],
    node_rank: int,
    run: Path | None,
    timeout: float,
    interrupted: Callable[[], bool],
) -> Iterator[tuple[str, int]]:
    """``endpoint`` with a port: as given, else the one that node 0 takes now and holds while the body runs.

    Raises ``nodes-missing`` where node 0 does not say it within ``timeout`` seconds. After an interrupt the port may
    still be to be chosen.
    """
    host, port = endpoint
    if port != TO_BE_CHOSEN or run is None:
        yield endpoint
    elif node_rank == 0:
        with hold_port() as holder:
            write_atomic(run / _NAME, f"{holder.getsockname()[1]}\n", mode=0o600)
            yield host, int(holder.getsockname()[1])
    else:
        yield host, _read(run / _NAME, timeout, interrupted)


def forget(run: Path) -> None:
    """No port of an earlier attempt is taken for this one's."""
    (run / _NAME).unlink(missing_ok=True)


def _read(path: Path, timeout: float, interrupted: Callable[[], bool]) -> int:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if interrupted():
            return TO_BE_CHOSEN
        os.listdir(path.parent)  # noqa: PTH208  # has an NFS client look again
        if path.exists():
            return int(path.read_text())
        time.sleep(0.2)
    raise RankupError(
        "nodes-missing",
        f"node 0 has not said within {timeout:g} s at which port it listens",
        context=str(path),
        hint="do all nodes see the run directory? --runs-root has to be on a file system that they share",
        exit_code=1,
    )
