"""``rankup drill --here``: a SLURM or PBS of the size that the job asks for comes up on this machine.

The drill runs on it. rankup itself stays outside: the scheduler's commands run on the head, as the user whose jobs they
are.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rankup.check.document import Document
from rankup.check.facts.job.reader import read_job
from rankup.check.facts.job.request import Request
from rankup.core.shell import Completed
from rankup.drill.copied_job import JobScript
from rankup.drill.lab.lab import HEAD, MOST_NODES, Lab
from rankup.drill.lab.pbs import PbsLab
from rankup.drill.lab.slurm import SlurmLab
from rankup.drill.lab.users import User, acting_as, as_root, job_user
from rankup.drill.pbs import PbsQueue
from rankup.drill.pretended import pretended_scheduler
from rankup.drill.queue import FIVE_MINUTES_S, Ask, Cluster, Queue
from rankup.drill.slurm import SlurmQueue
from rankup.errors import RankupError
from rankup.rehearse import sandbox
from rankup.rehearse.request import Sizes, allocation_of
from rankup.schedulers.submit_environment import clean_environment

_PACKAGE = Path(__file__).parents[1]
# Each host has its own.
_PRIVATE = ("/tmp", "/dev/shm")
_LABS: dict[str, type[Lab]] = {"slurm": SlurmLab, "pbs": PbsLab}
_QUEUES: dict[str, Callable[[Ask], Queue]] = {"slurm": SlurmQueue, "pbs": PbsQueue}


@contextmanager
def cluster_here(
    job: JobScript, user_name: str, *, spare: bool, says: Callable[[str], None]
) -> Iterator[Cluster]:
    """``user_name``: whose jobs; "" for who has called sudo. ``spare``: as many nodes more as the job has, so that a
    second one runs beside it. Raises ``RankupError``."""
    kind = _LABS[job.scheduler]
    if why := kind.why_not():
        if user_name:
            raise RankupError("not-here", f"--as needs a real {kind.title} here", context=why)
        with _pretended(job, why) as cluster:
            says(cluster.pretended)
            yield cluster
        return
    _refuse_private(job)
    user = job_user(user_name)
    lab = lab_for(job, spare=spare)
    sizes = f"nodes: {len(lab.nodes)}, CPUs of each: {lab.cpus}, GPUs: {lab.gpus}"
    says(f"a {lab.title} comes up on this machine ({sizes})")
    try:
        lab.up()
        if user is not None:
            lab.let_preempt(user)
        with acting_as(user):
            queue = _QUEUES[lab.kind](_ask(lab, user))
            yield Cluster(queue, _action(lab.cut_power), _action(lab.revive))
    finally:
        lab.down()


@contextmanager
def _pretended(job: JobScript, why: str) -> Iterator[Cluster]:
    title, missing = _LABS[job.scheduler].title, _LABS[job.scheduler].missing()
    no_sandbox = sandbox.available()
    if any(job.folder.is_relative_to(f"/{name}") for name in ("dev", "run", "proc", "sys")):
        no_sandbox = f"{job.folder} is not seen in a sandbox"
    if no_sandbox:
        packages = [name for name in missing if " " not in name]
        install = f"apt-get install {' '.join(packages)}; " if packages else ""
        raise RankupError(
            f"no-{job.scheduler}-here",
            f"this machine can have neither a {title} of its own nor a pretended one",
            context=f"{why}; {no_sandbox}",
            hint=f"{install}without --here the drill uses your queue",
        )
    with pretended_scheduler(job.scheduler) as scheduler:
        queue = _QUEUES[job.scheduler](scheduler.ask)
        said = f"no {title}, but a pretended cluster: {why}"
        yield Cluster(queue, pretended=said, lost=scheduler.lost)


def _refuse_private(job: JobScript) -> None:
    for private in _PRIVATE:
        if job.folder.is_relative_to(private):
            raise RankupError(
                "folder-not-shared",
                f"the job's folder is below {private}, of which each host has its own",
                context=str(job.folder),
                hint="copy the folder to a place that all hosts share, such as your home directory",
            )


def lab_for(job: JobScript, *, spare: bool) -> Lab:
    """Its nodes have what the job's directives ask for."""
    request = read_job(Document(str(job.path), job.text)).request
    if request.heterogeneous:
        raise RankupError(
            "heterogeneous-job", "this job asks for several kinds of nodes (hetjob), and --here has one kind"
        )
    allocation, _, _ = allocation_of(request, Sizes(), job.path.name)
    nodes = allocation.num_nodes * (2 if spare else 1)
    if nodes > MOST_NODES:
        raise RankupError(
            "too-many-nodes",
            f"{nodes} nodes are more than the {MOST_NODES} that come up on one machine",
            hint="a drill shows the same on 2 nodes; `second-job` among the failures doubles them",
        )
    python = {Path(sys.prefix), Path(sys.base_prefix), _PACKAGE}
    sizes: dict[str, Any] = {
        "cpus": max(allocation.cpus),
        "gpus": max(allocation.gpus),
        "visible": sorted(path for path in python if path.is_relative_to("/tmp")),
    }
    if job.scheduler == "slurm":
        partitions = [name for name in _words(request, "partition") if name != "main"]
        features, gpu_type = _words(request, "constraint"), _gpu_type(request)
        return SlurmLab(nodes, queues=partitions, features=features, gpu_type=gpu_type, **sizes)
    if re.search(r"\bpack\b", request.resources.get("place", ("",))[0]):  # all chunks on one node
        sizes |= {"cpus": sum(allocation.cpus), "gpus": sum(allocation.gpus)}
    asked = {*request.resources, *(name for chunk in request.chunks for name in chunk.resources)}
    return PbsLab(nodes, queues=[*_words(request, "q")[:1]], resources=sorted(asked), **sizes)


def _words(request: Request, option: str) -> list[str]:
    """The names in ``a,b`` or ``a&b|c*2``."""
    directive = request.get(option)
    names = re.findall(r"[A-Za-z_][\w.-]*", directive.value) if directive is not None else []
    return list(dict.fromkeys(names))


def _gpu_type(request: Request) -> str:
    """``a100`` in ``gpu:a100:4`` and ``a100:4``."""
    directive = request.gpu_directive
    for part in directive.value.split(",") if directive is not None else ():
        words = re.sub(r"^(gres[:/])?gpu(:|$)|\(.*", "", part).split(":")
        if re.match(r"[A-Za-z]", words[0]) and (
            directive is None or directive.name != "gres" or "gpu" in part
        ):
            return words[0]
    return ""


def _ask(lab: Lab, user: User | None) -> Ask:
    def ask(tokens: Sequence[str], folder: Path | None = None) -> Completed:
        env = clean_environment(os.environ)
        # Those of the machine's own scheduler, if it has one.
        env = {
            name: value for name, value in env.items() if not name.startswith(("SLURM", "SBATCH_", "PBS_"))
        }
        env["PATH"] = f"{env.get('PATH', '')}:{lab.path}"
        with as_root():
            return lab.run(HEAD, tokens, env, FIVE_MINUTES_S, user=user, folder=folder or Path("/"))

    return ask


def _action(act: Callable[[str], None]) -> Callable[[str], str]:
    def done(node: str) -> str:
        try:
            with as_root():
                act(node)
        except RankupError as error:
            return error.message
        return ""

    return done
