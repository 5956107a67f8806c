"""What a rank has of its own: its number, its cores, its GPU."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

from rankup.core import shell
from rankup.world import World
from rankup.world.devices import cpu_affinity, parse_nvidia_smi, visible_gpus


def rank_facts(world: World, env: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Of this process, which a launcher has started as one of its tasks."""
    listed = shell.run(["nvidia-smi", "-L"], timeout=5)
    installed = parse_nvidia_smi(listed.out) if listed.code == 0 else []
    visible = visible_gpus(installed, env.get("CUDA_VISIBLE_DEVICES"))
    uuids = [_uuid(entry, {str(gpu.index): gpu.uuid for gpu in installed}) for entry in visible]
    return describe_rank(world, uuids, cpu_affinity(), env)


def describe_rank(
    world: World, gpus: list[str], affinity: list[int], env: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "rank": world.rank,
        "local_rank": world.local_rank,
        "world_size": world.world_size,
        "local_world_size": world.local_world_size,
        "node_rank": world.node_rank,
        "launcher": world.launcher,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "affinity": affinity,
        "gpus": gpus,
        "device": gpus[world.local_rank % len(gpus)] if gpus else None,
        "visible": env.get("CUDA_VISIBLE_DEVICES"),
        "omp_threads": env.get("OMP_NUM_THREADS"),
        "cpus_per_task": env.get("SLURM_CPUS_PER_TASK"),
        "job": _job(env),
        "pmi": sorted(name for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE") if env.get(name)),
    }


def _uuid(entry: str, by_index: Mapping[str, str]) -> str:
    return by_index.get(entry, entry)


def _job(env: Mapping[str, str]) -> dict[str, Any]:
    """What the scheduler has given to the job of this process."""
    return {
        "scheduler": "slurm" if env.get("SLURM_JOB_ID") else "pbs" if env.get("PBS_JOBID") else "",
        "gpus": env.get("SLURM_GPUS_ON_NODE"),
        "tasks": env.get("SLURM_STEP_NUM_TASKS"),
    }
