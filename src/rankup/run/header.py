"""What is about to run on this node, in a line: processes, devices, threads."""

from __future__ import annotations

import os
from collections.abc import Mapping

from rankup.run.resolve import Resolved
from rankup.world.devices import cpu_affinity


def header(resolved: Resolved, env: Mapping[str, str] = os.environ) -> str:
    """``2 processes on 2 GPUs, 4 threads each``."""
    threads = resolved.threads or env.get("OMP_NUM_THREADS", "")
    each = " each" if resolved.nproc > 1 else ""
    cores = len(cpu_affinity())
    devices = _count(resolved.gpus, "GPU") if resolved.gpus else f"the CPU ({_count(cores, 'core')})"
    node = f"node {resolved.node_rank} of {resolved.nnodes}: " if resolved.nnodes > 1 else ""
    said = f"{node}{_count(resolved.nproc, 'process')} on {devices}"
    return f"{said}, {_count(threads, 'thread')}{each}" if threads else said


def _count(number: int | str, noun: str) -> str:
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{number} {noun if str(number) == '1' else plural}"
