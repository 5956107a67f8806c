"""What the processes of a run find in their environment."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from rankup.core.rundir import RUN_DIR_VARIABLE, RunDir
from rankup.launchers.torchrun import OWN_STORE
from rankup.run.process_cleanup import MARK
from rankup.run.resolve import Resolved
from rankup.run.separate_models import with_torch_hook
from rankup.world.address import interface_of, route_to
from rankup.world.ports import hold_port

# Who a process is, is what we decide: values that a shell or an outer run left behind would contradict it.
IDENTITY = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"),
)
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
INIT_FILE = "RANKUP_INIT_FILE"


def for_processes(
    base: Mapping[str, str], extra: Mapping[str, str], resolved: Resolved, run: RunDir, mark: str
) -> dict[str, str]:
    """The environment of this node's launcher, which its ranks inherit."""
    env = {k: v for k, v in base.items() if k not in IDENTITY and not k.startswith("TORCHELASTIC_")}
    env |= extra
    env[RUN_DIR_VARIABLE] = str(run.path)
    env[MARK] = mark
    env[INIT_FILE] = str(run.path / "init-file")
    env.setdefault("PYTHONUNBUFFERED", "1")  # a log that lags behind hides why a rank hangs
    if resolved.threads is not None:
        env["OMP_NUM_THREADS"] = str(resolved.threads)
    if resolved.nproc * resolved.nnodes > 1:
        env |= with_torch_hook(env)
    if resolved.nproc * resolved.nnodes > 1 and resolved.gpus == 0:
        # Without it Accelerate and Hugging Face's Trainer find no GPU, and make each rank a world of its own.
        env.setdefault("ACCELERATE_USE_CPU", "1")
    if resolved.max_restarts:
        env |= OWN_STORE
    interface = gloo_interface(resolved)
    if interface:
        env.setdefault("GLOO_SOCKET_IFNAME", interface)
    if resolved.launcher == "single":
        # A plain torchrun-style script reads these, and expects a world of one.
        env |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
        if "SLURM_JOB_ID" not in env:
            # And one that was written for srun these. Not SLURM_NTASKS: by it Lightning believes that srun started it.
            env |= {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "NODE_RANK": "0"}
    return env


def gloo_interface(resolved: Resolved) -> str | None:
    """The network interface that gloo should use: it asks the resolver otherwise, which often says 127.0.1.1."""
    if resolved.endpoint is None:
        return _LOOPBACK
    return interface_of(route_to(resolved.endpoint[0]))


def _free_port() -> int:
    with hold_port() as probe:
        return int(probe.getsockname()[1])
