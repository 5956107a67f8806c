"""One process: the command itself. No torchrun, so no torch is needed and a debugger works."""

from __future__ import annotations

from collections.abc import Sequence

from rankup.launchers.base import Start, expanded_code, whole_command
from rankup.spec.jobspec import JobSpec


def tokens(spec: JobSpec, run_id: str, guard: Sequence[str]) -> list[str]:
    return [*guard, *spec.rank_command]


def lines(start: Start) -> list[str]:
    """Bash that starts the process in the background; on SLURM as a step, which has the job's cores and GPUs."""
    words = whole_command(start)
    if start.scheduler == "slurm":
        cpus = [f"--cpus-per-task={start.cpus}"] if start.cpus else []
        options = map(expanded_code, start.options)
        words = ["srun", "--nodes=1", "--ntasks=1", *cpus, "--mpi=none", *options, *words]
    return [f"{' '.join(words)} &", "workers=$!"]
