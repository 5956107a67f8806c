"""What the hosts of a PBS have, by pbsnodes. (qsub itself refuses what exceeds a queue's own limits.)"""

from __future__ import annotations

from collections.abc import Mapping

from rankup.core.shell import Completed
from rankup.findings.finding import Finding
from rankup.schedulers.queue_limits import NodeKind, QueueLimits, never_granted
from rankup.sites.discovery import PBSNODES, read_hosts
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec


def limits_command(spec: JobSpec, env: Mapping[str, str]) -> list[str]:
    # Raw directives may request anything, and a queue of another server has other hosts.
    elsewhere = spec.directives or "@" in spec.queue or env.get("PBS_DEFAULT") or env.get("PBS_SERVER")
    return [] if elsewhere else [*PBSNODES]


def read_limits(done: Completed, spec: JobSpec, site: Site) -> list[Finding]:
    hosts = read_hosts(done.out) if done.code == 0 else []
    if not hosts:
        return []
    counted = any(host.gpus for host in hosts)  # else this site's GPUs are not called ngpus
    kinds = tuple(NodeKind(1, host.cpus, host.memory, host.gpus if counted else None) for host in hosts)
    spread = "scatter" in site.pbs.place or spec.nodes == 1
    return never_granted(
        spec, [QueueLimits("the cluster", kinds)], "PBS", cpus=spec.agent_cpus or 1, spread=spread
    )
