"""The program that a job starts is not there."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from difflib import get_close_matches

from rankup.check.facts.job.commands import Command, Output
from rankup.check.facts.job.job import Job, Launch
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_NEAR = 0.85  # trian.py is as near as this to train.py; main.py is not
# They bring files, or change where a job runs.
_BRINGS = frozenset(
    {
        "git", "hg", "svn", "wget", "curl", "aria2c", "aws", "gsutil", "rclone", "dvc", "tar", "unzip", "gunzip",
        "zstd", "7z", "cp", "rsync", "scp", "sbcast", "mv", "ln", "mount", "jupyter", "nbconvert", "patch", "make",
        "cookiecutter", "pushd", "chroot",
    }
)  # fmt: skip
_FOLDERS = ("-D", "--chdir", "-wd", "--wd", "--directory", "--cwd", "--workdir", "-C", "--container")


def find(job: Job) -> Iterator[Match]:
    if not job.complete or job.sources_files or _elsewhere(job):
        return
    for launch in job.launches:
        folder, name = posixpath.split(launch.script)
        if not launch.beside or launch.script in launch.beside or not _plain(job, launch, name):
            continue
        near = get_close_matches(name, [posixpath.basename(path) for path in launch.beside], 1, _NEAR)
        if not near and not folder.strip("./"):
            continue  # the job may be submitted from another folder
        meant = f"; did you mean {posixpath.join(folder, near[0])!r}?" if near else ""
        yield Match(
            job.document,
            launch.target.span if launch.target is not None else launch.span,
            f"{launch.script} is not there{meant}",
        )


def _elsewhere(job: Job) -> bool:
    """Whether the job may run in another folder than that of its submission, or bring its files with it."""
    request = job.request
    if (
        request.get("D", "chdir") is not None
        or request.get("d", "w") is not None
        or "wd" in request.resources
    ):
        return True
    for command in job.commands:
        if command.name in _BRINGS:
            return True
        if command.name == "cd" and any(
            isinstance(atom, Output) for word in command.argv for atom in word.atoms
        ):
            return True
        if any(word.head.startswith(_FOLDERS) for word in command.argv):
            return True
    return False


def _plain(job: Job, launch: Launch, name: str) -> bool:
    """Whether a launch looks for its program in the folder of the submission, and nothing else names the program."""
    command = launch.command
    if command.conditional or command.folder is None or launch.containers or launch.command.in_output:
        return False
    own = {id(one.command) for one in job.launches if one.script == launch.script}
    parent: Command | None = command
    while parent is not None:
        own.add(id(parent))
        if parent.name in ("bash", "sh", "ssh", "pbsdsh"):
            return False  # another shell, perhaps in another folder
        parent = parent.parent
    for other in job.commands:
        named = any(name in redirect.target.text for redirect in other.redirects)
        if named or (id(other) not in own and any(name in word.text for word in other.argv)):
            return False
    return True


_JOB = """--- job.sh
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
"""
_PROGRAM = """--- train.py
import torch

print(torch.cuda.device_count())
"""

RULE = Rule(
    code="RK173",
    name="no-such-program",
    severity=Severity.ERROR,
    confidence=Confidence.LIKELY,
    what="A job starts a program that does not exist: a file beside it has nearly its name, or its folder is there.",
    why="The job waits in the queue, starts, and ends at once with 'No such file or directory'.",
    fix="Correct the path. It is relative to the folder from which the job is submitted.",
    find=find,
    fires=(
        _JOB + "torchrun --standalone --nproc_per_node=4 trian.py --epochs 10\n" + _PROGRAM,
        _JOB
        + "cd $SLURM_SUBMIT_DIR\nsrun python src/main.py\n"
        + _PROGRAM.replace("train.py", "src/train.py"),
    ),
    silent=(
        _JOB + "torchrun --standalone --nproc_per_node=4 train.py --epochs 10\n" + _PROGRAM,
        _JOB + "srun python main.py\n" + _PROGRAM,
    ),
)
