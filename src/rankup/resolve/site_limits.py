"""Whether a site can run a job: its nodes, its launchers, and the values that it requires.

``SITE_LIMITS`` finds what the site lacks, does not allow, or requires.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rankup.core.arrays import parse_array
from rankup.core.units import clock, parse_duration, parse_size, size
from rankup.findings.engine import Source
from rankup.findings.finding import Finding, Severity
from rankup.resolve.findings import MOST_TASKS, finding
from rankup.resolve.resolved import Resolved
from rankup.sites.site import Site
from rankup.spec.validation import flag


def _required(job: Resolved) -> Iterator[Finding]:
    for key in job.site.required:
        if not getattr(job.spec, key):
            yield Finding(
                f"missing-{key.replace('_', '-')}",
                Severity.ERROR,
                f"{job.site.title or job.site.name} requires {flag(key)}",
                place=f"site {job.site.name}",
                fix=f"{flag(key)} {key.upper()}, or {key} = … in [defaults] of a profile of your own",
            )


def _launcher(job: Resolved) -> Iterator[Finding]:
    launcher, site = job.spec.launcher, job.site
    if launcher != "single" and launcher not in site.launchers:
        yield finding("launcher-not-allowed", job, launchers=" or ".join(site.launchers))


def _gpu_type(job: Resolved) -> Iterator[Finding]:
    if job.spec.gpu_type and job.site.scheduler != "slurm":
        yield finding("gpu-type-not-here", job)


def _scheduler(job: Resolved) -> Iterator[Finding]:
    if job.site.scheduler == "local" and job.spec.nodes > 1:
        yield Finding(
            "impossible-size",
            Severity.ERROR,
            f"the job needs {job.spec.nodes} nodes, and {job.site.name} is one machine without a scheduler",
            place="--nodes",
            fix="--site NAME, on a machine with sbatch or qsub; see rankup sites list",
        )


def _array(job: Resolved) -> Iterator[Finding]:
    tasks = sum(map(len, parse_array(job.spec.array)))
    if tasks > MOST_TASKS:
        yield finding("bad-array", job, tasks=tasks, most=MOST_TASKS)


def _nodes(job: Resolved) -> Iterator[Finding]:
    nodes, queue, site = job.spec.nodes, job.spec.queue, job.site
    there = site.queue_nodes.get(queue) if queue else None
    if there and nodes > there:
        yield finding("impossible-size", job, there=there)


def _time(job: Resolved) -> Iterator[Finding]:
    time, queue, site = job.spec.time, job.spec.queue, job.site
    longest = site.queue_time.get(queue) if queue else None
    if time and longest and time > parse_duration(longest):
        yield finding("impossible-time", job, time=clock(time), longest=longest)


def _gpus(job: Resolved) -> Iterator[Finding]:
    gpus, there = job.spec.gpus_per_node, job.site.node.gpus
    if gpus and there and gpus > there:
        yield _too_much("gpus_per_node", f"{gpus} GPUs", str(there), job.site)


def _cores(job: Resolved) -> Iterator[Finding]:
    cores, there = job.spec.cpus_per_node, job.site.node.cpus
    if _on_known_node(job) and not [*_gpus(job)] and cores and there and cores > there:
        yield _too_much("cpus_per_task", f"{cores} cores", str(there), job.site)


def _memory(job: Resolved) -> Iterator[Finding]:
    mem, there = job.spec.mem, job.site.node.memory
    follows = job.origin["mem"] == "derived" and [*_gpus(job)]
    if _on_known_node(job) and not follows and mem and there and mem > parse_size(there):
        yield _too_much("mem", f"{size(mem)} of memory", there, job.site)


SITE_LIMITS: Mapping[str, Source[Resolved]] = {
    "missing-key": _required,
    "launcher-not-allowed": _launcher,
    "gpu-type-not-here": _gpu_type,
    "several-nodes": _scheduler,
    "array-size": _array,
    "nodes": _nodes,
    "time": _time,
    "gpus": _gpus,
    "cores": _cores,
    "memory": _memory,
}


def _on_known_node(job: Resolved) -> bool:
    """The profile describes the nodes with GPUs, if the site has any: the others may be larger."""
    return bool(job.spec.gpus_per_node or not job.site.node.gpus)


def _too_much(key: str, needed: str, there: str, site: Site) -> Finding:
    return Finding(
        "impossible-size",
        Severity.ERROR,
        f"the job needs {needed} on each node, and a node of {site.name} has {there}",
        place=flag(key),
        fix="more nodes, or fewer GPUs on each" if key == "gpus_per_node" else "ask for less on each node",
    )
