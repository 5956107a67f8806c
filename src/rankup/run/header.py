"""What is about to run on this node, in a line: processes, devices, threads."""

from __future__ import annotations

import os
from collections.abc import Mapping

from rankup.run.environment import threads_of
from rankup.spec.jobspec import JobSpec
from rankup.world.devices import count_gpus, cpu_affinity


def header(spec: JobSpec, env: Mapping[str, str] = os.environ) -> str:
    """``2 processes on 2 GPUs, 4 threads each``."""
    threads = threads_of(spec, env) or env.get("OMP_NUM_THREADS", "")
    gpus = count_gpus({**env, **spec.env})
    each = " each" if spec.nproc_per_node > 1 else ""
    cores = len(cpu_affinity())
    devices = _count(gpus, "GPU") if gpus else f"the CPU ({_count(cores, 'core')})"
    node = f"node {spec.node_rank} of {spec.nodes}: " if spec.nodes > 1 else ""
    said = f"{node}{_count(spec.nproc_per_node, 'process')} on {devices}"
    return f"{said}, {_count(threads, 'thread')}{each}" if threads else said


def _count(number: int | str, noun: str) -> str:
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{number} {noun if str(number) == '1' else plural}"
