"""How a job script starts a program, in numbers: what a rule of programs may ask of the scripts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Start:
    """One start of a program. None is not known."""

    launcher: str = ""  # torchrun, srun, mpirun, accelerate, python …
    nodes: int | None = None
    processes_per_node: int | None = None
    gpus_per_node: int | None = None
    cpus_per_node: int | None = None
    arguments: tuple[str, ...] = ()
    processes: int | None = None  # on all nodes
