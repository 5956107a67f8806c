"""What a queue of PBS grants at least and at most. qsub says only that a job is outside of it."""

from __future__ import annotations

import re
from collections.abc import Callable

from rankup.core.units import clock, parse_clock, parse_size, size
from rankup.spec.jobspec import JobSpec

_BOUND = re.compile(r"resources_(max|min)\.(\w+) = (\S+)")


def range_command(spec: JobSpec) -> list[str]:
    return ["qstat", "-Qf", spec.queue] if spec.queue else []


def out_of_range(queue: str, spec: JobSpec) -> list[str]:
    """What ``spec`` asks for and ``queue`` (the answer of ``range_command``) does not grant, a sentence each."""
    cpus, gpus = spec.agent_cpus or 1, spec.gpus_per_node or 0
    asked: dict[str, tuple[str, int | None, Callable[[int], str]]] = {
        "walltime": ("--time", spec.time, clock),
        "nodect": ("--nodes", spec.nodes, str),
        "ncpus": (f"--nodes {spec.nodes} × {cpus} cores", spec.nodes * cpus, str),
        "ngpus": (f"--nodes {spec.nodes} × --gpus-per-node {gpus}", spec.nodes * gpus, str),
        "mem": (f"--nodes {spec.nodes} × --mem", spec.nodes * (spec.mem or 0), size),
    }
    said = []
    for word, name, text in _BOUND.findall(queue):
        flag, value, shown = asked.get(name, ("", 0, str))
        bound = _number(name, text)
        if value and bound is not None and (value > bound if word == "max" else value < bound):
            than = "more" if word == "max" else "less"
            said.append(f"{flag}: {shown(value)} is {than} than {shown(bound)} (resources_{word}.{name})")
    return said


def _number(name: str, text: str) -> int | None:
    if name == "walltime":
        return parse_clock(text)
    if name == "mem":
        try:
            return parse_size(text)
        except ValueError:  # kilobytes, or words
            return None
    return int(text) if text.isdecimal() else None
