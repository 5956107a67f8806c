"""Whether a site can run a job: its nodes, its launchers, and the values that it requires.

``SITE_LIMITS`` finds what the site lacks, does not allow, or requires; ``SECRETS`` variables without a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rankup.core.units import parse_size, size
from rankup.findings.engine import Source
from rankup.findings.finding import Finding, Severity
from rankup.resolve.facts import JobFacts
from rankup.sites.site import Site
from rankup.spec.validation import flag

_MOST_TASKS = 100_000


def _required(facts: JobFacts) -> Iterator[Finding]:
    for key in facts.site.required:
        if not getattr(facts.spec, key):
            yield Finding(
                f"missing-{key.replace('_', '-')}",
                Severity.ERROR,
                f"{facts.site.title or facts.site.name} requires {flag(key)}",
                place=f"site {facts.site.name}",
                fix=f"{flag(key)} {key.upper()}, or {key} = … in [defaults] of a profile of your own",
            )


def _launcher(facts: JobFacts) -> Iterator[Finding]:
    launcher, site = facts.spec.launcher, facts.site
    if launcher != "single" and launcher not in site.launchers:
        yield Finding(
            "launcher-not-allowed",
            Severity.ERROR,
            f"{site.name} does not start ranks by {launcher}",
            place=f"launcher: {facts.origin['launcher']}",
            fix=f"--launcher {' or '.join(site.launchers)}",
        )


def _gpu_type(facts: JobFacts) -> Iterator[Finding]:
    if facts.spec.gpu_type and facts.site.scheduler != "slurm":
        yield Finding(
            "gpu-type-not-here",
            Severity.ERROR,
            f"--gpu-type {facts.spec.gpu_type} is for SLURM: PBS has no common name for types of GPUs",
            place=f"site {facts.site.name}",
            fix="put the site's resource for GPUs into pbs.select of a profile, or name a queue with such GPUs: "
            "--queue",
        )


def _scheduler(facts: JobFacts) -> Iterator[Finding]:
    if facts.site.scheduler == "local" and facts.spec.nodes > 1:
        yield Finding(
            "impossible-size",
            Severity.ERROR,
            f"the job needs {facts.spec.nodes} nodes, and {facts.site.name} is one machine without a scheduler",
            place="--nodes",
            fix="--site NAME, on a machine with sbatch or qsub; see rankup sites list",
        )


def _array(facts: JobFacts) -> Iterator[Finding]:
    indices = facts.spec.array.partition("%")[0]
    tasks = sum(
        (int(last or first) - int(first)) // int(step or 1) + 1
        for first, last, step in re.findall(r"(\d+)(?:-(\d+))?(?::(\d+))?", indices)
    )
    if tasks > _MOST_TASKS:
        yield Finding(
            "bad-array",
            Severity.ERROR,
            f"--array {facts.spec.array} has {tasks} tasks; at most {_MOST_TASKS} are allowed",
            place="--array",
            why="no scheduler accepts more, and each task gets a directory",
        )


def _gpus(facts: JobFacts) -> Iterator[Finding]:
    gpus, there = facts.spec.gpus_per_node, facts.site.node.gpus
    if gpus and there and gpus > there:
        yield _too_much("gpus_per_node", f"{gpus} GPUs", str(there), facts.site)


def _cores(facts: JobFacts) -> Iterator[Finding]:
    cores, there = facts.spec.cpus_per_node, facts.site.node.cpus
    if _on_known_node(facts) and not [*_gpus(facts)] and cores and there and cores > there:
        yield _too_much("cpus_per_task", f"{cores} cores", str(there), facts.site)


def _memory(facts: JobFacts) -> Iterator[Finding]:
    mem, there = facts.spec.mem, facts.site.node.memory
    follows = facts.origin["mem"] == "derived" and [*_gpus(facts)]
    if _on_known_node(facts) and not follows and mem and there and mem > parse_size(there):
        yield _too_much("mem", f"{size(mem)} of memory", there, facts.site)


def _unset_secrets(facts: JobFacts) -> Iterator[Finding]:
    """A secret's value is taken from the environment of the submit."""
    for name in facts.spec.secrets:
        if name not in facts.env:
            yield Finding(
                "unset-secret",
                Severity.ERROR,
                f"the variable {name} is to be passed to the job, but is not set here",
                place=f"--env {name}",
                fix=f"export {name}=… first; or --env {name}=VALUE, if it is not secret",
            )


SITE_LIMITS: Mapping[str, Source[JobFacts]] = {
    "missing-key": _required,
    "launcher-not-allowed": _launcher,
    "gpu-type-not-here": _gpu_type,
    "several-nodes": _scheduler,
    "array-size": _array,
    "gpus": _gpus,
    "cores": _cores,
    "memory": _memory,
}
SECRETS: Mapping[str, Source[JobFacts]] = {"unset-secret": _unset_secrets}


def _on_known_node(facts: JobFacts) -> bool:
    """The profile describes the nodes with GPUs, if the site has any: the others may be larger."""
    return bool(facts.spec.gpus_per_node or not facts.site.node.gpus)


def _too_much(key: str, needed: str, there: str, site: Site) -> Finding:
    return Finding(
        "impossible-size",
        Severity.ERROR,
        f"the job needs {needed} on each node, and a node of {site.name} has {there}",
        place=flag(key),
        fix="more nodes, or fewer GPUs on each" if key == "gpus_per_node" else "ask for less on each node",
    )
