"""What the processes of a run find in their environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from rankup.core.rundir import RUN_DIR_VARIABLE, RunDir
from rankup.launchers.torchrun import OWN_STORE
from rankup.run.process_cleanup import MARK
from rankup.run.separate_models import with_torch_hook
from rankup.spec.jobspec import JobSpec
from rankup.spec.variables import WORLD_OF_ONE, variables
from rankup.world.address import interface_of, route_to
from rankup.world.devices import count_gpus, cpu_affinity
from rankup.world.ports import hold_port

# Who a process is, is what we decide: values that a shell or an outer run left behind would contradict it.
IDENTITY = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"),
)
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
INIT_FILE = "RANKUP_INIT_FILE"


def for_processes(
    base: Mapping[str, str], spec: JobSpec, endpoint: tuple[str, int] | None, run: RunDir, mark: str
) -> dict[str, str]:
    """The environment of this node's launcher, which its ranks inherit."""
    env = {k: v for k, v in base.items() if k not in IDENTITY and not k.startswith("TORCHELASTIC_")}
    env |= spec.env
    if spec.venv and not spec.container:
        bin_folder = Path(spec.python).parent
        env |= {
            "VIRTUAL_ENV": str(bin_folder.parent),
            "PATH": f"{bin_folder}{os.pathsep}{env.get('PATH', '')}",
        }
    env |= {RUN_DIR_VARIABLE: str(run.path), MARK: mark, INIT_FILE: str(run.path / "init-file")}
    threads = threads_of(spec, env)
    if threads is not None:
        env["OMP_NUM_THREADS"] = str(threads)
    gpus = count_gpus(env) if spec.world_size > 1 else 0
    interface = gloo_interface(endpoint) or ""
    for name, value in variables(spec, gpus=gpus, interface={"GLOO_SOCKET_IFNAME": interface}).items():
        env.setdefault(name, value)
    if spec.world_size > 1:
        env |= with_torch_hook(env)
    if spec.max_restarts:
        env |= OWN_STORE
    if spec.launcher == "single":
        # A plain torchrun-style script reads these, and expects a world of one.
        env |= {**WORLD_OF_ONE, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
        if "SLURM_JOB_ID" not in env:
            # And one that was written for srun these. Not SLURM_NTASKS: by it Lightning believes that srun started it.
            env |= {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "NODE_RANK": "0"}
    return env


def threads_of(spec: JobSpec, env: Mapping[str, str]) -> int | None:
    """Threads per process: as asked for, else cores / processes; None where the user has set OMP_NUM_THREADS."""
    if spec.threads is not None:
        return spec.threads
    if "OMP_NUM_THREADS" in {**env, **spec.env}:
        return None
    return spec.cpus_per_task or max(1, len(cpu_affinity()) // spec.nproc_per_node)


def gloo_interface(endpoint: tuple[str, int] | None) -> str | None:
    """The network interface that gloo should use: it asks the resolver otherwise, which often says 127.0.1.1."""
    if endpoint is None:
        return _LOOPBACK
    return interface_of(route_to(endpoint[0]))


def _free_port() -> int:
    with hold_port() as probe:
        return int(probe.getsockname()[1])
