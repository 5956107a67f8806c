"""The order in which launchers are tried. The first whose variables are found wins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from rankup.core.registry import load
from rankup.errors import RankupError
from rankup.world.world import Variables, World, detect_job, whole_number

# Module of a launcher → variables, one of which every process of it has; the module is imported if one is there.
ORDER = {
    # Innermost first: a launcher inside another inherits the outer one's variables, never the reverse.
    "torchrun": ("TORCHELASTIC_RUN_ID",),  # srun or mpirun may start its agents, whose ranks are then meant
    "openmpi": ("OMPI_COMM_WORLD_RANK",),  # mpirun starts its daemons by srun: SLURM's ranks are the daemons'
    "pals": ("PALS_RANKID",),  # before Hydra, because it sets PMI_RANK too
    "mvapich": ("MV2_COMM_WORLD_RANK",),  # before Hydra, because its mpiexec is a Hydra
    "hydra": ("PMI_RANK",),  # may run inside a SLURM step, like Open MPI
    "slurm": ("SLURM_STEP_ID", "SLURM_STEPID"),  # srun formed the ranks, if none of the launchers above did
    "pbs": ("PBS_JOBID",),  # an agent of pbsdsh: a process that it starts may have a launcher from above
    "env": ("RANK",),  # set by hand; last, because scripts export RANK and MASTER_ADDR under every launcher
}

# Variables that scripts export. One that is left over from another command would mislead the script or torch.
_EXPORTED = (
    ("RANK", "rank"),
    ("WORLD_SIZE", "world_size"),
    ("LOCAL_RANK", "local_rank"),
    ("LOCAL_WORLD_SIZE", "local_world_size"),
)


def detect(env: Mapping[str, str]) -> World:
    """The World of this process; see ``World.detect``."""
    world = next(filter(None, map(partial(_detect_by, env=env), ORDER)), None) or _alone(env)
    read = Variables(env)
    read.sources.update(world.sources)
    read.check_below("rank", world.rank, "world_size", world.world_size)
    read.check_below("local_rank", world.local_rank, "local_world_size", world.local_world_size)
    read.check_at_most("local_world_size", world.local_world_size, "world_size", world.world_size)
    for name, field in _EXPORTED:
        _refuse_stale(env, name, field, world)
    return world


def _detect_by(module: str, env: Mapping[str, str]) -> World | None:
    if not any(name in env for name in ORDER[module]):
        return None
    ask: Callable[[Mapping[str, str]], World | None] = load(f"rankup.world.{module}:detect")  # type: ignore[assignment]
    return ask(env)


def _alone(env: Mapping[str, str]) -> World:
    job = detect_job(env)
    sources = {name: source for name, source in job.sources.items() if name != "hosts"}
    return replace(World(), job_id=job.id, restart=job.restart, sources=sources)


def _refuse_stale(env: Mapping[str, str], name: str, field: str, world: World) -> None:
    if not env.get(name, "").strip() or whole_number(env, name) == getattr(world, field):
        return
    value, expected = env[name], getattr(world, field)
    if world.launcher == "none":
        others = [
            other for other in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if not env.get(other)
        ]
        message = (
            f"{name} is {value}, but {' and '.join(others)} {'are' if len(others) > 1 else 'is'} not set"
        )
        hint = f"export {' '.join(others)} too, or, for a single process, unset {name}"
    else:
        source = world.sources.get(field, f"the {field.replace('_', ' ')} under {world.launcher}")
        message = f"{name} is {value}, but {source} {'say' if ',' in source else 'is'} {expected}"
        hint = f"{name} is left over from an earlier command: unset {name}"
    raise RankupError(
        "contradictory-environment",
        message,
        context=f"while reading rank and sizes of this process (launcher: {world.launcher})",
        hint=hint,
    )
