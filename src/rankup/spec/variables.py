"""What the ranks of a job find in their environment, wherever they are started: here, or by a job's script."""

from __future__ import annotations

from collections.abc import Mapping

from rankup.spec.jobspec import JobSpec

# What a process reads that was made for torchrun, and runs alone.
WORLD_OF_ONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}


def variables(spec: JobSpec, *, gpus: int, interface: Mapping[str, str]) -> dict[str, str]:
    """Ours alone: what the job, its site or its user have set themselves wins over it.

    ``gpus`` are those of a node; ``interface`` are variables that name the network interface between the nodes, and
    are left out where it is "".
    """
    ours = {"PYTHONUNBUFFERED": "1"}  # a log that lags behind hides why a rank hangs
    if threads := spec.threads or spec.cpus_per_task:
        ours["OMP_NUM_THREADS"] = str(threads)  # torchrun would say 1
    if gpus == 0 and spec.world_size > 1:
        # Without it Accelerate and Hugging Face's Trainer find no GPU, and make each rank a world of its own.
        ours["ACCELERATE_USE_CPU"] = "1"
    ours |= {name: value for name, value in interface.items() if value}
    if spec.nccl_debug:
        ours["NCCL_DEBUG"] = "INFO"
        ours["NCCL_DEBUG_SUBSYS"] = "INIT,NET,ENV"
    return ours
