"""One process: the command itself. No torchrun, so no torch is needed and a debugger works."""

from __future__ import annotations

from rankup.launchers.base import Launch, Start, code, path_code


def tokens(launch: Launch) -> list[str]:
    return list(launch.command)


def lines(start: Start) -> list[str]:
    """Bash that starts the process in the background; on SLURM as a step, which has the job's cores and GPUs."""
    words = [*map(path_code, start.inside), *map(code, start.command)]
    if start.scheduler == "slurm":
        cpus = [f"--cpus-per-task={start.cpus}"] if start.cpus else []
        words = ["srun", "--nodes=1", "--ntasks=1", *cpus, "--mpi=none", *words]
    return [f"{' '.join(words)} &", "workers=$!"]
