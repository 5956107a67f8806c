"""What a job asks of PBS, as options of qsub: OpenPBS and PBS Pro's ``select``, and Torque's ``nodes:ppn``."""

from __future__ import annotations

from rankup.core.units import clock
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec


def resources(spec: JobSpec, site: Site) -> list[str]:
    """Nodes, cores, GPUs, time and whose account, one option per element as tokens."""
    chunk = _torque(spec, site) if site.pbs.dialect == "torque" else _select(spec, site)
    options = ["-N", spec.name]
    options += ["-A", spec.account] if spec.account else []
    options += ["-q", spec.queue] if spec.queue else []
    for part in chunk:
        options += ["-l", part]
    if spec.time:
        options += ["-l", f"walltime={clock(spec.time)}"]
    return options


def directives(spec: JobSpec, site: Site, output: str) -> list[str]:
    """Everything that stands behind ``#PBS``. No comments here: qsub takes a trailing one for a part of the value."""
    tokens = resources(spec, site)
    options = [" ".join(pair) for pair in zip(tokens[::2], tokens[1::2], strict=True)]
    options += ["-j oe", "-r y"]
    options += [f"-o {output}"] if output else []
    if spec.array:
        options += [f"{'-t' if site.pbs.dialect == 'torque' else '-J'} {spec.array}"]
    options += [f"-m abe\n-M {spec.mail}"] if spec.mail else []
    return [line for option in options for line in option.split("\n")] + list(spec.directives)


def _processes(spec: JobSpec) -> int:
    """Lines per host in the node file: one for torchrun's agent, one per rank for mpirun."""
    return spec.nproc_per_node if spec.launcher == "mpirun" else 1


def _select(spec: JobSpec, site: Site) -> list[str]:
    parts = [f"select={spec.nodes}"]
    parts += [f"ncpus={spec.agent_cpus}"] if spec.agent_cpus else []
    parts += [f"mpiprocs={_processes(spec)}"]
    parts += [f"ompthreads={spec.cpus_per_task}"] if spec.cpus_per_task else []
    parts += [f"ngpus={spec.gpus_per_node}"] if spec.gpus_per_node else []
    parts += [f"mem={spec.mem}mb"] if spec.mem else []
    parts += [site.pbs.select] if site.pbs.select else []
    place = site.pbs.place + (":excl" if spec.exclusive and ":excl" not in site.pbs.place else "")
    return [":".join(parts), f"place={place}"]


def _torque(spec: JobSpec, site: Site) -> list[str]:
    # In Torque a node's ppn are its cores, and the node file has a line for each.
    parts = [f"nodes={spec.nodes}", f"ppn={spec.cpus_per_node or spec.nproc_per_node}"]
    parts += [f"gpus={spec.gpus_per_node}"] if spec.gpus_per_node else []
    parts += [site.pbs.select] if site.pbs.select else []
    return [":".join(parts), *([f"mem={spec.mem * spec.nodes}mb"] if spec.mem else [])]
