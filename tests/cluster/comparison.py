"""What a rehearsal shows and what the processes of the lab say of themselves, in the same form."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from rehearsed import Pair

from rankup.rehearse.processes import Process
from rankup.rehearse.report import Report

#: The variables that are compared: those that do not differ from job to job.
COMPARED = [
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_NUM_NODES",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_STEP_NODELIST",
    "SLURM_NNODES",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_NODELIST",
    "SLURM_NODELIST",
    "SLURM_TASKS_PER_NODE",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPUS_ON_NODE",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_GTIDS",
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "SLURM_DISTRIBUTION",
    "SLURM_GPUS_ON_NODE",
    "SLURM_STEP_GPUS",
    "SLURM_JOB_GPUS",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS",
    "SLURMD_NODENAME",
    "SLURMD_TRES_BIND",
    "SLURM_LAUNCH_NODE_IPADDR",
    "HOSTNAME",
    "SLURM_SUBMIT_DIR",
    "SLURM_JOB_NAME",
    "SLURM_JOB_PARTITION",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_ARRAY_TASK_COUNT",
    "SLURM_ARRAY_TASK_MIN",
    "SLURM_ARRAY_TASK_MAX",
    "SLURM_ARRAY_TASK_STEP",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "NODE_RANK",
    "MASTER_ADDR",
    "OMP_NUM_THREADS",
    "TMPDIR",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "OMPI_COMM_WORLD_NODE_RANK",
]


def reported(facts: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What the processes of the lab say, sorted."""
    return sorted((one["host"], tuple(one["argv"]), one["cwd"], *environment(one["env"])) for one in facts)


def environment(env: dict[str, str]) -> list[str]:
    return [f"{name}={env[name]}" for name in COMPARED if name in env]


def expected(report: Report) -> list[tuple[Any, ...]]:
    """The same of a rehearsal: of the programs and agents that it has recorded."""
    found = []
    for launch in report.launches:
        for one in launch.started:
            argv = one.event["argv"][1:] if one.agent is not None else one.event["argv"][2:]
            found.append((one.host, tuple(argv), one.event["cwd"], *environment(dict(one.environment))))
    return sorted(found)


def processes(report: Report) -> list[Process]:
    return [one for launch in report.launches for one in launch.processes]


def table_row(one: Process) -> tuple[Any, ...]:
    """A line of the table: host, node, rank, local rank, world size, GPU, where it meets, arguments, folder."""
    words = re.split(r"(?:train\.py|simulate) ", one.command, maxsplit=1)[-1]
    meeting = one.meeting.rpartition(":")[0]
    numbers = (one.node_rank, one.rank, one.local_rank, one.world_size)
    return (one.host, *numbers, one.device, meeting, words, one.folder)


def real_row(one: dict[str, Any]) -> tuple[Any, ...]:
    """The same, as a process of the lab says it."""
    env = one["env"]
    visible = env.get("CUDA_VISIBLE_DEVICES", "").split(",")
    local = int(env["LOCAL_RANK"])
    device = (visible[local] if local < len(visible) else "") or "-"
    numbers = (
        int(env.get("GROUP_RANK", env.get("NODE_RANK", -1))),
        int(env["RANK"]),
        local,
        int(env["WORLD_SIZE"]),
    )
    return (one["host"], *numbers, device, env.get("MASTER_ADDR", ""), " ".join(one["argv"]), one["cwd"])


def unlike(what: str, table: Sequence[tuple[Any, ...]], seen: Sequence[tuple[Any, ...]]) -> list[str]:
    """The lines of two sorted lists that differ."""
    if list(table) == list(seen):
        return []
    wrong = [f"{what}: {len(table)} rehearsed, {len(seen)} seen"]
    for here, there in zip_longest(table, seen, fillvalue=()):
        ours, theirs = {*map(str, here)}, {*map(str, there)}
        if ours != theirs:
            wrong.append(f"  {sorted(ours - theirs)} rehearsed, {sorted(theirs - ours)} seen")
    return wrong


def differences(
    name: str, table: list[tuple[Any, ...]], facts: list[dict[str, Any]], pair: Pair
) -> list[str]:
    """What the rehearsal and the lab say differently of programs or agents."""
    wrong = unlike(name, ports(table), ports(reported(facts)))
    return [*wrong, f"log: {pair.log()}"] if wrong else []


def ports(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Ports that no other job can get differ from run to run; so do the commands that hold them."""
    return sorted(
        tuple(re.sub(r"\b(1[5-9]|2\d|3[012])\d{3}\b", "PORT", word) if isinstance(word, str)
              else tuple(re.sub(r"\b(1[5-9]|2\d|3[012])\d{3}\b", "PORT", each) for each in word) for word in row)
        for row in rows
    )  # fmt: skip
