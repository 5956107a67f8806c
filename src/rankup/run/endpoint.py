"""Where the nodes of an allocation meet: node 0 takes a port that nobody else has, and says so in the run directory."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rankup.core.files import write_atomic
from rankup.errors import RankupError
from rankup.world.ports import hold_port

# Stands in an agent's --rdzv-endpoint for the port that node 0 will take.
TO_BE_CHOSEN = 0
_NAME = "rendezvous-port"


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
