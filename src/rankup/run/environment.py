"""The environment of a run's processes, and the line that says what starts in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from rankup.core.choices import LOST
from rankup.core.rundir import RUN_DIR_VARIABLE, RunDir
from rankup.launchers.torchrun import OWN_STORE
from rankup.run.process_cleanup import MARK, new_process_mark
from rankup.run.separate_models import COUNT_STEPS, with_torch_hook
from rankup.spec.jobspec import JobSpec
from rankup.spec.variables import WORLD_OF_ONE, variables
from rankup.world.devices import count_gpus, cpu_affinity
from rankup.world.ports import hold_port

# Who a process is, is what we decide: values that a shell or an outer run left behind would contradict it.
IDENTITY = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"),
)
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
INIT_FILE = "RANKUP_INIT_FILE"


def for_processes(base: Mapping[str, str], spec: JobSpec, run: RunDir) -> dict[str, str]:
    """The environment of this node's launcher, which its ranks inherit."""
    env = {k: v for k, v in base.items() if k not in IDENTITY and not k.startswith("TORCHELASTIC_")}
    env |= spec.env
    if spec.venv and not spec.container:
        bin_folder = Path(spec.python).parent
        env |= {
            "VIRTUAL_ENV": str(bin_folder.parent),
            "PATH": f"{bin_folder}{os.pathsep}{env.get('PATH', '')}",
        }
    env |= {
        RUN_DIR_VARIABLE: str(run.path),
        MARK: new_process_mark(base),
        INIT_FILE: str(run.path / "init-file"),
    }
    if spec.lost:
        env[LOST.variable] = spec.lost
    if spec.threads is not None or "OMP_NUM_THREADS" not in env:  # else the user has set it
        cores = spec.cpus_per_task or max(1, len(cpu_affinity()) // spec.nproc_per_node)
        env["OMP_NUM_THREADS"] = str(spec.threads or cores)
    gpus = count_gpus(env) if spec.world_size > 1 else 0
    interface = _LOOPBACK  # gloo asks the resolver otherwise, which often says 127.0.1.1
    if spec.endpoint is not None:
        from rankup.world.address import interface_of, route_to

        interface = interface_of(route_to(spec.endpoint.host)) or ""
    for name, value in variables(spec, gpus=gpus, interface={"GLOO_SOCKET_IFNAME": interface}).items():
        env.setdefault(name, value)
    if spec.world_size > 1 or COUNT_STEPS in env:
        env |= with_torch_hook(env)
    if spec.max_restarts:
        env |= OWN_STORE
    if spec.launcher == "single":
        # A plain torchrun-style script reads these, and expects a world of one.
        with hold_port() as probe:
            env |= {**WORLD_OF_ONE, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
        if "SLURM_JOB_ID" not in env:
            # And one that was written for srun these. Not SLURM_NTASKS: by it Lightning believes that srun started it.
            env |= {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "NODE_RANK": "0"}
    return env


def header(spec: JobSpec, env: Mapping[str, str]) -> str:
    """What starts on this node in ``env``, in a line: ``2 processes on 2 GPUs, 4 threads each``."""
    gpus, cores = count_gpus(env), len(cpu_affinity())
    devices = _count(gpus, "GPU") if gpus else f"the CPU ({_count(cores, 'core')})"
    node = f"node {spec.node_rank} of {spec.nodes}: " if spec.nodes > 1 else ""
    each = " each" if spec.nproc_per_node > 1 else ""
    threads = _count(env["OMP_NUM_THREADS"], "thread")
    return f"{node}{_count(spec.nproc_per_node, 'process')} on {devices}, {threads}{each}"


def _count(number: int | str, noun: str) -> str:
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{number} {noun if str(number) == '1' else plural}"
