"""What a partition grants at most, by sinfo."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from rankup.core.shell import Completed
from rankup.core.units import parse_clock
from rankup.findings.finding import Finding
from rankup.schedulers.queue_limits import NodeKind, QueueLimits, never_granted
from rankup.schedulers.slurm.directives import tasks_and_cpus
from rankup.sites.discovery import SINFO, read_sinfo
from rankup.spec.jobspec import JobSpec

# With these another limit holds, or another size: the partition does not decide, or not over what we know.
_ELSEWHERE = ("SBATCH_QOS", "SBATCH_RESERVATION", "SBATCH_CLUSTERS", "SLURM_CLUSTERS", "SBATCH_CONSTRAINT")
_OTHER_REQUESTS = (
    *("-p", "--partition", "-q", "--qos", "-M", "--clusters", "--cluster", "--reservation", "-t", "--time"),
    *("--time-min", "-N", "--nodes", "-n", "--ntasks", "-c", "--cpus", "-O", "--overcommit", "--mem"),
    *(
        "-G",
        "--gpus",
        "--gres",
        "--tasks-per-node",
        "-B",
        "--extra-node-info",
        "--threads-per-core",
        "--hint",
    ),
)


def limits_command(spec: JobSpec, env: Mapping[str, str]) -> list[str]:
    try:
        options = [word for line in spec.directives for word in shlex.split(line, comments=True)]
    except ValueError:  # a quote without its end: sbatch says what is wrong with it
        return []
    if any(env.get(name) for name in _ELSEWHERE) or any(o.startswith(_OTHER_REQUESTS) for o in options):
        return []
    queue = spec.queue or env.get("SBATCH_PARTITION", "")
    return [*SINFO, *([f"--partition={queue}"] if queue else [])]


def read_limits(done: Completed, spec: JobSpec, env: Mapping[str, str]) -> list[Finding]:
    try:
        said = read_sinfo(done.out) if done.code == 0 else []
    except ValueError:  # another version's, or a wrapper's
        return []
    asked = spec.queue or env.get("SBATCH_PARTITION", "")
    names = asked.split(",") if asked else [queue.name for queue in said if queue.default][:1]
    limits = []
    for name in names:
        kinds = [queue for queue in said if queue.name == name]
        if not kinds:  # unknown to sinfo: sbatch says what is wrong with it
            return []
        nodes = tuple(NodeKind(kind.nodes, kind.cpus, kind.memory, kind.gpus) for kind in kinds)
        limits.append(QueueLimits(f"partition {name}", nodes, parse_clock(kinds[0].time), kinds[0].most))
    tasks, cpus = tasks_and_cpus(spec)
    return never_granted(spec, limits, "SLURM", cpus=tasks * (cpus or 1))
