"""What a job asks of SLURM, as options of sbatch and salloc."""

from __future__ import annotations

import re

from rankup.core.units import clock, size
from rankup.errors import RankupError
from rankup.sites.site import Site
from rankup.spec.jobspec import JobSpec


def resources(spec: JobSpec, site: Site) -> list[str]:
    """Nodes, tasks, GPUs, time and whose account: what sbatch and salloc both take."""
    tasks, cpus = tasks_and_cpus(spec)
    options = [f"--job-name={spec.name}"]
    options += [f"--account={spec.account}"] if spec.account else []
    options += [f"--partition={spec.queue}"] if spec.queue else []
    options += [f"--nodes={spec.nodes + spec.spare}", f"--ntasks-per-node={tasks}"]
    options += [f"--cpus-per-task={cpus}"] if cpus else []
    options += [_gpus(spec, site)] if spec.gpus_per_node else []
    options += [f"--mem={size(spec.mem)}"] if spec.mem else []
    options += [f"--time={clock(spec.time, days=True)}"] if spec.time else []
    options += ["--exclusive"] if spec.exclusive else []
    return options


def directives(spec: JobSpec, site: Site, output: str, error: str = "") -> list[str]:
    """Everything that stands behind ``#SBATCH``: ``resources``, the log, mail, arrays, and what requeueing needs.

    USR1 goes to the batch shell alone (B:): without the B it would hit the ranks and their data loaders, and kill
    them. Without append a requeued job erases its own log.
    """
    options = resources(spec, site)
    options += ["--no-kill"] if spec.spare else []  # it keeps its other nodes if it loses one
    options += [f"--array={spec.array}"] if spec.array else []
    options += [
        f"--signal=B:USR1@{spec.lead}",
        "--requeue=expedite" if site.slurm.expedite else "--requeue",
        "--open-mode=append",
        f"--output={_quoted(output)}",
    ]
    options += [f"--error={_quoted(error)}"] if error else []
    if spec.mail:
        options += [f"--mail-user={spec.mail}", "--mail-type=BEGIN,END,FAIL,REQUEUE"]
    return [*options, *spec.directives]


def path_pattern(path: str) -> str:
    """``path`` as a part of --output that means exactly it: SLURM fills in %j and its like."""
    if "\\" in path or "\n" in path:
        raise RankupError(
            "bad-directory",
            f"SLURM cannot write a log below {path!r}",
            hint="a path without backslashes and line breaks: --runs-root DIR",
        )
    return path.replace("%", "%%")


def _quoted(text: str) -> str:
    """For a directive, in which sbatch takes a blank for the end of a value and a # for that of the line."""
    if not re.search(r"[\s#'\"]", text):
        return text
    return '"' + text.replace('"', '\\"') + '"'


def tasks_and_cpus(spec: JobSpec) -> tuple[int, int | None]:
    """(tasks per node, cores per task). torchrun's agent is one task, which needs the cores of all its ranks."""
    if spec.launcher in ("srun", "mpirun"):
        return spec.nproc_per_node, spec.cpus_per_task
    return 1, spec.agent_cpus


def _gpus(spec: JobSpec, site: Site) -> str:
    """Per node, never per task: a task that sees one GPU alone has no fast path to its neighbours'."""
    name = spec.gpu_type or site.slurm.pick
    kind = f"{name}:" if name else ""
    if site.slurm.gpus == "gres":
        return f"--gres=gpu:{kind}{spec.gpus_per_node}"
    return f"--gpus-per-node={kind}{spec.gpus_per_node}"
