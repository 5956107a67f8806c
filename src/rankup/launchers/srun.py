"""srun, one task per rank. SLURM places, binds and ends the ranks; they need no agent."""

from __future__ import annotations

from rankup.launchers.base import Start, expanded_code, in_background, rank_shell


def lines(start: Start) -> list[str]:
    """Bash that starts all ranks in the background. ``--label`` puts its rank before each line that a rank prints.

    GPUs are asked for per node, so that every task sees all of its node's; which is its own is its local rank's
    business. ``--mpi=none``: the ranks are not an MPI program, and PMI's variables would have libraries believe it.
    """
    # Since 22.05 srun does not take -c from the job; and a user who starts srun needs the variable.
    bind = f"mask_cpu:{','.join(start.masks)}" if start.masks else "cores"
    cpus = [f"--cpus-per-task={start.cpus}", f"--cpu-bind={bind}"] if start.cpus else []
    options = [
        f"--nodes={start.nodes}",
        f"--ntasks={start.world_size}",
        f"--ntasks-per-node={start.nproc}",
        *cpus,
        "--distribution=block",
        "--kill-on-bad-exit=1",
        "--mpi=none",
        "--label",
        *map(expanded_code, start.options),
    ]
    variables = {
        "RANK": "$SLURM_PROCID",
        "LOCAL_RANK": "$SLURM_LOCALID",
        "WORLD_SIZE": "$SLURM_NTASKS",
        "LOCAL_WORLD_SIZE": str(start.nproc),
        "NODE_RANK": "$SLURM_NODEID",
    }
    return in_background(f"srun {' '.join(options)}", rank_shell(start, variables))
