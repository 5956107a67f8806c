"""``srun``'s command line and its input variables → what the step asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rankup.launch_grammar.numbers import refusal
from rankup.launch_grammar.reader import read_text


@dataclass
class SrunOptions:
    """What stands on the command line, by long name, and the command to run."""

    options: Mapping[str, str] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    problem: str = ""
    unknown: list[str] = field(default_factory=list)

    def number(self, name: str) -> int | None:
        text = self.options.get(name, "")
        match = re.match(r"\+?(\d+)", text.rpartition(":")[2] if name.startswith("gpus") else text)
        return int(match[1]) if match else None

    def has(self, name: str) -> bool:
        return name in self.options


def parse(words: Sequence[str]) -> SrunOptions:
    """The command line after ``srun``. A long option that is not known may be a site's: it is left out."""
    line = read_text("srun", words)
    refused = (f"error: {said}" for one in line.given if (said := refusal(one.option, one.value)))
    problem = line.problem or next(refused, "")
    return SrunOptions(
        line.options, list(line.rest), f"srun: {problem}" if problem else "", list(line.unknown)
    )


#: Input variables of srun that change a step; an option on the command line wins.
_INPUT = {
    "SLURM_NNODES": "nodes", "SLURM_JOB_NUM_NODES": "nodes", "SLURM_NPROCS": "ntasks", "SLURM_NTASKS": "ntasks",
    "SLURM_NTASKS_PER_NODE": "ntasks-per-node", "SLURM_GPUS_PER_TASK": "gpus-per-task", "SLURM_GPU_BIND": "gpu-bind",
    "SLURM_NTASKS_PER_GPU": "ntasks-per-gpu", "SLURM_DISTRIBUTION": "distribution", "SLURM_EXPORT_ENV": "export",
    "SLURM_STEP_GPUS_PER_NODE": "gpus-per-node", "SLURM_OVERLAP": "overlap", "SLURM_EXACT": "exact",
    "SLURM_LABELIO": "label", "SLURM_OVERCOMMIT": "overcommit", "SLURM_WHOLE": "whole",
    "SLURM_MPI_TYPE": "mpi", "SLURM_REMOTE_CWD": "chdir", "SLURM_WORKING_DIR": "chdir",
    "SRUN_CPUS_PER_TASK": "cpus-per-task", "SRUN_EXPORT_ENV": "export",
}  # fmt: skip


def inherited(env: Mapping[str, str], version: tuple[int, int]) -> dict[str, str]:
    """The options that variables give. In 22.05 and 23.02 the job's own -c is not among them."""
    given = {option: env[name] for name, option in _INPUT.items() if name in env}
    job_cpus = env.get("SLURM_CPUS_PER_TASK")
    if job_cpus and "cpus-per-task" not in given and not (22, 5) <= version < (23, 11):
        given["cpus-per-task"] = job_cpus
    return given
