"""What a job asks of PBS, as options of qsub."""

from __future__ import annotations

from collections.abc import Sequence

from rankup.core.units import clock
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec


def resources(spec: JobSpec, nodes: Sequence[str]) -> list[str]:
    """``nodes``, time and whose account, one option per element as tokens."""
    options = ["-N", spec.name]
    options += ["-A", spec.account] if spec.account else []
    options += ["-q", spec.queue] if spec.queue else []
    for part in nodes:
        options += ["-l", part]
    if spec.time:
        options += ["-l", f"walltime={clock(spec.time)}"]
    return options


def directives(spec: JobSpec, tokens: Sequence[str], output: str, *, array: str) -> list[str]:
    """Everything that stands behind ``#PBS``: ``tokens`` are the job's resources, ``array`` is the flag of an array.

    No comments here: qsub takes a trailing one for a part of the value.
    """
    options = [" ".join(pair) for pair in zip(tokens[::2], tokens[1::2], strict=True)]
    options += ["-j oe", "-r y"]
    options += [f"-o {output}"] if output else []
    if spec.array:
        options += [f"{array} {spec.array}"]
    options += [f"-m abe\n-M {spec.mail}"] if spec.mail else []
    return [line for option in options for line in option.split("\n")] + list(spec.directives)


def _processes(spec: JobSpec) -> int:
    """Lines per host in the node file: one for torchrun's agent, one per rank for mpirun."""
    return spec.nproc_per_node if spec.launcher == "mpirun" else 1


def select(spec: JobSpec, site: Site) -> list[str]:
    """The nodes, their cores and their GPUs, as values of ``-l``."""
    shared = not site.pbs.whole_nodes
    parts = [f"select={spec.nodes}"]
    parts += [f"ncpus={spec.agent_cpus}"] if spec.agent_cpus and shared else []
    parts += [f"mpiprocs={_processes(spec)}"]
    parts += [f"ompthreads={spec.cpus_per_task}"] if spec.cpus_per_task else []
    parts += [f"ngpus={spec.gpus_per_node}"] if spec.gpus_per_node and shared else []
    parts += [f"mem={spec.mem}mb"] if spec.mem and shared else []
    parts += [site.pbs.select] if site.pbs.select else []
    place = site.pbs.place + (":excl" if spec.exclusive and ":excl" not in site.pbs.place else "")
    return [":".join(parts), f"place={place}"]
