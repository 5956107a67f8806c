"""What a launcher is asked to start on one node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from rankup.core.registry import lookup
from rankup.launchers import LAUNCHERS


@dataclass(frozen=True)
class Launch:
    """One node's share of a job.

    ``command`` is what each rank executes, ``nproc`` how many of them this node holds. ``endpoint`` is the host and
    port of node 0 where there are several nodes, ``run_id`` a name that all of them share.
    """

    command: tuple[str, ...]
    python: str
    nproc: int = 1
    nnodes: int = 1
    node_rank: int = 0
    max_restarts: int = 0
    endpoint: tuple[str, int] | None = None
    run_id: str = ""


Launcher = Callable[[Launch], list[str]]


def launcher_named(name: str) -> Launcher:
    return cast(Launcher, lookup("launcher", name, LAUNCHERS))
