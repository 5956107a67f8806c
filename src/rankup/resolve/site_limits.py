"""Whether a site can run a job: its nodes, its launchers, what it wants to be told."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rankup.core.units import parse_size, size
from rankup.errors import RankupError
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec
from rankup.spec.validation import flag

_MOST_TASKS = 100_000


def check_fits(spec: JobSpec, site: Site, origin: Mapping[str, str]) -> None:
    """Raises ``RankupError`` for what the site lacks, does not allow, or wants to be given."""
    for key in site.required:
        if not getattr(spec, key):
            raise RankupError(
                f"missing-{key.replace('_', '-')}",
                f"{site.title or site.name} wants to be told the {key.replace('_', ' ')}",
                context=f"site {site.name}",
                hint=f"{flag(key)} {key.upper()}, or {key} = … in [defaults] of a profile of your own",
            )
    if spec.launcher != "single" and spec.launcher not in site.launchers:
        raise RankupError(
            "launcher-not-allowed",
            f"{site.name} does not start ranks by {spec.launcher}",
            context=f"launcher: {origin['launcher']}",
            hint=f"--launcher {' or '.join(site.launchers)}",
        )
    if spec.gpu_type and site.scheduler != "slurm":
        raise RankupError(
            "gpu-type-not-here",
            f"--gpu-type {spec.gpu_type} is for SLURM: there is no such resource in all of PBS",
            context=f"site {site.name}",
            hint="its own word for GPUs goes into pbs.select of a profile, or name a queue with such GPUs: --queue",
        )
    if site.scheduler == "local" and spec.nodes > 1:
        raise RankupError(
            "impossible-size",
            f"{spec.nodes} nodes are asked for, and this is one machine without a scheduler",
            context=f"site {site.name}",
            hint="--site NAME, where sbatch or qsub is; rankup sites list",
        )
    tasks = sum(
        (int(last or first) - int(first)) // int(step or 1) + 1
        for first, last, step in re.findall(r"(\d+)(?:-(\d+))?(?::(\d+))?", spec.array.partition("%")[0])
    )
    if tasks > _MOST_TASKS:
        raise RankupError(
            "bad-array",
            f"an array of {tasks} tasks is more than a scheduler takes",
            context=f"--array {spec.array}",
            hint=f"at most {_MOST_TASKS}: each has a directory of its own, too",
        )
    node = site.node
    _at_most("gpus_per_node", spec.gpus_per_node, node.gpus, "GPUs", site)
    # The profile's node is the one with GPUs, where the site has any: others may be larger.
    if spec.gpus_per_node or not node.gpus:
        _at_most("cpus_per_task", spec.cpus_per_node, node.cpus, "cores", site)
        if spec.mem and node.memory and spec.mem > parse_size(node.memory):
            raise _too_much("mem", size(spec.mem), node.memory, "of memory", site)


def check_secrets(names: Iterable[str], env: Mapping[str, str]) -> None:
    """Raises ``RankupError`` where a secret has no value here: it is taken from the environment of the submit."""
    for name in names:
        if name not in env:
            raise RankupError(
                "unset-secret",
                f"{name} is to be passed to the job, and is not set here",
                context=f"--env {name}",
                hint=f"export {name}=… first, or --env {name}=VALUE for what is no secret",
            )


def _at_most(key: str, asked: int | None, there: int | None, what: str, site: Site) -> None:
    if asked and there and asked > there:
        raise _too_much(key, str(asked), str(there), what, site)


def _too_much(key: str, asked: str, there: str, what: str, site: Site) -> RankupError:
    return RankupError(
        "impossible-size",
        f"each node would have to have {asked} {what}, and one of {site.name} has {there}",
        context=flag(key),
        hint="more nodes, or less on each" if key == "gpus_per_node" else "less on each node",
    )
