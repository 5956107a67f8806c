"""Torque: a PBS without ``select``, whose qstat has no JSON and forgets jobs soon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rankup.errors import RankupError
from rankup.schedulers.base import JobStatus
from rankup.schedulers.pbs.commands import Pbs
from rankup.schedulers.pbs.qstat import Attributes
from rankup.schedulers.pbs.states import OUT_OF_TIME, job_status
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec

# An Exit_status below 0 is Torque's own word.
_LIMITS = {
    -10: "used more memory than requested (--mem)",
    -11: OUT_OF_TIME,
    -12: "used more CPU time than is allowed",
}

_NAMES = {"exit_status": "Exit_status", "start_time": "stime"}


class Torque(Pbs):
    name = "torque"
    array_flag = "-t"

    def nodes(self, spec: JobSpec, site: Site) -> list[str]:
        # A node's ppn are its cores, and the node file has a line for each.
        parts = [f"nodes={spec.nodes}", f"ppn={spec.cpus_per_node or spec.nproc_per_node}"]
        parts += [f"gpus={spec.gpus_per_node}"] if spec.gpus_per_node else []
        parts += [site.pbs.select] if site.pbs.select else []
        return [":".join(parts), *([f"mem={spec.mem * spec.nodes}mb"] if spec.mem else [])]

    def status_commands(self, ids: Sequence[str]) -> list[list[str]]:
        tasks = ["-t"] if any("[" in job for job in ids) else []
        return [["qstat", "-f", *tasks, *ids]]

    def status_of(self, job: str, attributes: Attributes) -> JobStatus:
        said = {_NAMES.get(name, name): value for name, value in attributes.items()}
        if (letter := said.get("job_state", "")) == "C":  # completed, or aborted
            said["job_state"] = "F"
        return replace(job_status(job, said, _LIMITS), native=letter)

    def limits_command(self, spec: JobSpec, site: Site, env: Mapping[str, str]) -> list[str]:
        return []

    def start_command(self, spec: JobSpec, site: Site) -> list[str]:
        raise RankupError("start-unknown", "Torque does not estimate when a job starts")
