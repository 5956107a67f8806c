"""The tasks of a launcher leave their facts for the agent of their node.

``srun rankup doctor`` starts the ranks as the training's ranks will be started: only there their cores and GPUs can be
seen. They write to a folder of their own node, which needs neither network nor shared directory; an agent, which rank
0 has started on each node, reads it there.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankup.core.files import write_atomic
from rankup.core.shell import run
from rankup.doctor.plan import Plan
from rankup.doctor.probes.ranks import describe_rank
from rankup.errors import RankupError
from rankup.world import World
from rankup.world.devices import count_gpus, cpu_affinity, parse_nvidia_smi, visible_gpus

_WAIT = 3.0  # seconds for the tasks of this node; they have started before the agent


def folder_of(env: Mapping[str, str], world: World) -> Path:
    """The same for all tasks of this start on a node, and of nobody else."""
    step = "/".join(
        env.get(name, "")
        for name in (
            "SLURM_JOB_ID",
            "SLURM_STEP_ID",
            "PBS_JOBID",
            "PMIX_NAMESPACE",
            "PALS_APID",
            "TORCHELASTIC_RUN_ID",
        )
    )
    digest = hashlib.sha256(f"{os.getuid()}/{step}/{world.restart}/{world.world_size}".encode()).hexdigest()[
        :12
    ]
    return Path(tempfile.gettempdir()) / f"rankup-doctor-{os.getuid()}-{digest}"


def leave_facts(folder: Path, facts: Mapping[str, Any]) -> None:
    """One file per rank, readable by its owner alone. Raises ``no-node-folder``."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if not _ours(folder):
            raise PermissionError(0, "it belongs to somebody else")
        write_atomic(folder / f"rank-{facts['rank']}-{facts['pid']}.json", json.dumps(facts), mode=0o600)
    except OSError as error:
        raise RankupError(
            "no-node-folder",
            f"rank {facts['rank']} on {facts['host']} cannot leave its facts for the agent: {error.strerror}",
            context=str(folder),
            hint="export TMPDIR as a directory of the node's own that you may write to",
            exit_code=1,
        ) from error


@functools.cache  # the speed of their cores is measured later, with the same ranks
def node_ranks(plan: Plan, node: int) -> list[dict[str, Any]]:
    """The facts of this node's ranks: those that its tasks have left, else of those that ``rankup run`` would start."""
    if plan.tasks:
        return _left(Path(plan.tasks), plan.counts[node] if plan.counts else 1)
    return _planned(plan, node)


def forget(folder: Path) -> None:
    """Remove what the tasks of this node have left."""
    if _ours(folder):
        for path in folder.glob("rank-*.json"):
            path.unlink(missing_ok=True)
        folder.rmdir()


def _left(folder: Path, expected: int) -> list[dict[str, Any]]:
    deadline = time.monotonic() + _WAIT
    while True:
        files = sorted(folder.glob("rank-*.json")) if _ours(folder) else []
        if len(files) >= expected or time.monotonic() > deadline:
            return sorted((json.loads(path.read_text()) for path in files), key=lambda one: int(one["rank"]))
        time.sleep(0.05)


def _ours(folder: Path) -> bool:
    try:
        state = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid()


def _planned(plan: Plan, node: int) -> list[dict[str, Any]]:
    listed = run(["nvidia-smi", "-L"], timeout=5)
    installed = parse_nvidia_smi(listed.out) if listed.code == 0 else []
    by_index = {str(gpu.index): gpu.uuid for gpu in installed}
    gpus = [
        by_index.get(entry, entry)
        for entry in visible_gpus(installed, os.environ.get("CUDA_VISIBLE_DEVICES"))
    ]
    each = plan.nproc or len(gpus) or count_gpus() or 1
    nodes = len(plan.hosts)
    worlds = [
        World(node * each + i, i, nodes * each, each, node, nodes, launcher="rankup") for i in range(each)
    ]
    return [describe_rank(world, gpus, cpu_affinity(), os.environ) for world in worlds]
