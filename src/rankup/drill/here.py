"""``rankup drill --here``: a SLURM of the size that the job asks for comes up on this machine.

The drill runs on it. rankup itself stays outside: SLURM's commands run on the head, as the user whose jobs they are.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rankup.check.document import Document
from rankup.check.facts.job.reader import read_job
from rankup.check.facts.job.request import Request
from rankup.core.shell import Completed
from rankup.drill.copied_job import JobScript
from rankup.drill.lab.lab import HEAD, MOST_NODES, Lab, missing_packages, why_not
from rankup.drill.lab.users import User, acting_as, as_root, job_user
from rankup.drill.queue import FIVE_MINUTES_S, Ask, Cluster
from rankup.drill.slurm import SlurmQueue
from rankup.errors import RankupError
from rankup.rehearse.request import Sizes, allocation_of
from rankup.schedulers.submit_environment import clean_environment

_MEMORY_MB = 4_000_000  # of each node: more than any job asks for
_PACKAGE = Path(__file__).parents[1]
# Each host has its own.
_PRIVATE = ("/tmp", "/dev/shm")


@contextmanager
def slurm_here(
    job: JobScript, user_name: str, *, spare: bool, says: Callable[[str], None]
) -> Iterator[Cluster]:
    """``user_name``: whose jobs; "" for who has called sudo. ``spare``: as many nodes more as the job has, so that a
    second one runs beside it. Raises ``RankupError``."""
    _refuse(job)
    user = job_user(user_name)
    lab = lab_for(job, spare=spare)
    says(
        f"a SLURM comes up on this machine (nodes: {len(lab.nodes)}, CPUs of each: {lab.cpus}, GPUs: {lab.gpus})"
    )
    try:
        lab.up()
        with acting_as(user):
            yield Cluster(SlurmQueue(_ask(lab, user)), _action(lab.crash), _action(lab.revive))
    finally:
        lab.down()


def _refuse(job: JobScript) -> None:
    if job.scheduler != "slurm":
        raise RankupError(
            "no-pbs-here",
            f"{job.path.name} is for PBS, and --here has SLURM only",
            hint="without --here the drill uses your queue; `rankup rehearse --for-real` needs no scheduler",
        )
    if why := why_not():
        missing = missing_packages()
        install = f"apt-get install {' '.join(missing)}; " if missing else ""
        raise RankupError(
            "no-slurm-here",
            "this machine cannot have a SLURM of its own",
            context=why,
            hint=f"{install}without --here the drill uses your queue; `rankup rehearse --for-real` needs no scheduler",
        )
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
    return Lab(
        nodes,
        cpus=max(allocation.cpus),
        gpus=max(allocation.gpus),
        memory=_MEMORY_MB,
        partitions=[name for name in _words(request, "partition") if name != "main"],
        features=_words(request, "constraint"),
        gpu_type=_gpu_type(request),
        visible=sorted(path for path in python if path.is_relative_to("/tmp")),
    )


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
        # Those of the machine's own SLURM, if it has one.
        env = {name: value for name, value in env.items() if not name.startswith(("SLURM", "SBATCH_"))}
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
