"""``World``: which process this is among all processes of its run; and the scheduler's job in which it runs.

Both are read from variables: whole numbers, with errors that name the variable, and the origin of each field.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rankup.core.registry import load
from rankup.errors import RankupError

# What torch calls a kind of device → the backend of its process group. Snapshots and flags go over gloo, whatever
# computes. NVIDIA's and AMD's GPUs are ``cuda``, Intel's ``xpu``.
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl", "xpu": "cpu:gloo,xpu:xccl"}
ACCELERATORS = tuple(kind for kind in BACKENDS if kind != "cpu")


@dataclass(frozen=True)
class World:
    """Rank, sizes, nodes and job of one process. Ranks count from zero and are below their sizes.

    ``hosts`` are the names of the nodes in the order of their node ranks, or () if the environment does not
    tell them. ``launcher`` formed the ranks: torchrun, openmpi, pals, mvapich, hydra, srun, pbsdsh (an agent
    that knows only its node), env (RANK and the like were set by hand) or none (a single process).
    ``job_id`` is the scheduler's, ``123_4`` for a task of a SLURM array. ``restart`` counts how often the
    job was requeued plus how often torchrun restarted its workers. ``sources`` names for each field the
    variables it came from.
    """

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    node_rank: int = 0
    num_nodes: int = 1
    hosts: tuple[str, ...] = ()
    launcher: str = "none"
    job_id: str | None = None
    restart: int = 0
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0: the one that prints and writes."""
        return self.rank == 0

    @classmethod
    def detect(cls, env: Mapping[str, str] = os.environ) -> World:
        """The World of the process with the environment ``env``.

        Reads only ``env``, and on PBS the file that PBS_NODEFILE names. Raises ``RankupError`` if variables
        contradict each other, and names them with their values.
        """
        # Loaded by name, because it imports World.
        detect: Callable[[Mapping[str, str]], World] = load("rankup.world.detection:detect")  # type: ignore[assignment]
        return detect(env)


# Module of a scheduler → variables of its jobs; the module is imported if one of them is there.
_SCHEDULERS = {"slurm": ("SLURM_JOB_ID", "SLURM_JOBID"), "pbs": ("PBS_JOBID",)}


@dataclass(frozen=True)
class SchedulerJob:
    """A job's id, how often it was requeued, and its hosts, each once, in the scheduler's order.

    Without a scheduler all fields are empty. ``node_name`` is the scheduler's name of this process's node.
    ``sources`` maps ``job_id``, ``restart`` and ``hosts`` to the variables they came from.
    """

    id: str | None = None
    restart: int = 0
    hosts: tuple[str, ...] = ()
    node_name: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)


def detect_job(env: Mapping[str, str]) -> SchedulerJob:
    """SLURM's job, else PBS's, else none."""
    for module, names in _SCHEDULERS.items():
        if any(name in env for name in names):
            job: SchedulerJob | None = load(f"rankup.world.{module}:job")(env)  # type: ignore[operator]
            if job is not None:
                return job
    return SchedulerJob()


class Variables:
    """An environment, and in ``sources`` the origin of each field: field → variable. Empty variables count as unset."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = env
        self.sources: dict[str, str] = {}

    def first(self, *names: str) -> str | None:
        """The first of ``names`` that is set."""
        return next((name for name in names if self.env.get(name, "").strip()), None)

    def number(self, field: str, *names: str, default: int | None = None) -> int:
        """The whole number in the first of ``names`` that is set. Without a default one of them must be set."""
        name = self.first(*names)
        if name is not None:
            self.sources[field] = name
            return whole_number(self.env, name)
        if default is None:
            raise RankupError(
                "incomplete-environment",
                f"{' or '.join(names)} is not set, although other variables of the same launcher are",
                context=_reading(field),
                hint="pass all variables of the launcher to the process",
            )
        return default

    def check_below(self, field: str, value: int, size_field: str, size: int) -> None:
        """Raise an error if a rank is not below its size: the two variables contradict each other."""
        if value >= size:
            raise self._contradiction(field, value, size_field, size, "the first must be below the second")

    def check_at_most(self, field: str, value: int, size_field: str, size: int) -> None:
        """Raise an error if a part is larger than the whole: the two variables contradict each other."""
        if value > size:
            raise self._contradiction(field, value, size_field, size, "the first must not be larger")

    def _contradiction(self, field: str, value: int, other: str, other_value: int, why: str) -> RankupError:
        name, other_name = self.sources.get(field, field), self.sources.get(other, other)
        return RankupError(
            "contradictory-environment",
            f"{name} is {value}, but {other_name} is {other_value}: {why}",
            context=_reading(field),
            hint=f"one of them is left over from an earlier command: unset {name.replace(',', '')}"
            f" {other_name.replace(',', '')}, and start the processes again",
        )


def whole_number(env: Mapping[str, str], name: str) -> int:
    """The variable as a number from 0 on."""
    text = env[name].strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise RankupError(
            "not-a-number",
            f"{name} is {env[name]!r}, but must be a whole number, at least 0",
            context="while reading rank and sizes of this process from the environment",
            hint=f"unset {name}, or let the launcher set it",
        )
    return int(text)


def _reading(field: str) -> str:
    return f"while reading this process's {field.replace('_', ' ')} from the environment"
