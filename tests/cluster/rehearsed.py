"""A job script in a folder of its own, twice: in a rehearsal, and in a lab whose nodes are as large as a site's."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab import HEAD, SYSTEM_PATH, BatchJob, Lab, why_not

from goldens.jobs import script
from rankup.check.document import Document
from rankup.check.facts.job.reader import read_job
from rankup.rehearse.rehearse import Options, rehearse
from rankup.rehearse.report import Report, judged
from rankup.rehearse.request import Sizes, allocation_of

# Of a node: as many as the largest of the sites has. Scripts of 4 GPUs that run at once each need a node of their own.
CPUS, GPUS, MEMORY = 288, 4, 1_100_000
PARTITIONS = ("gpu", "cpu", "accel", "small-g", "standard-g", "gpularge", "long", "batch", "normal")
RECORDER = """
import json, os, sys, uuid
facts = {"host": os.uname().nodename, "argv": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ)}
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "FOLDER", uuid.uuid4().hex)
with open(path, "w") as file:
    json.dump(facts, file)
"""
AGENT = RECORDER.replace("FOLDER", "agents")
REAL_AGENT = (
    f"{AGENT}\nos.execv(sys.executable, [sys.executable, '-m', 'torch.distributed.run', *sys.argv[1:]])\n"
)
TRAIN = RECORDER.replace("FOLDER", "seen") + "\nif False:\n    import torch\n"
# A container's command, as far as our scripts use it: its options, the image, and what runs inside.
CONTAINER = """#!/bin/sh
shift
while case $1 in --nv) shift ;; --bind) shift 2 ;; *) false ;; esac; do :; done
shift
name=${1##*/}
shift
exec "$name" "$@"
"""


@contextmanager
def site_lab(gpus: int = GPUS) -> Iterator[Lab]:
    """A lab whose nodes are as large as those of the sites, with their partitions and what their scripts load."""
    reason = why_not()
    if reason:
        pytest.skip(f"no SLURM lab: {reason}")
    lab = Lab(warm=True, cpus=CPUS, gpus=gpus, memory=MEMORY, partitions=PARTITIONS)
    try:
        lab.up()
        write(lab.shared / "venv/bin/activate", "")
        write(lab.shared / "modules/init/bash", "module() { :; }\n")
        write(lab.shared / "conda/etc/profile.d/conda.sh", "conda() { :; }\n")
        yield lab
    finally:
        lab.down()


class Pair:
    """The script ``text``. ``torchrun`` writes down its environment; if it is real, it then starts its ranks."""

    def __init__(
        self, lab: Lab, name: str, text: str, *, real_torchrun: bool = False, hosts: str = "node[1-2]"
    ) -> None:
        self.lab, self.name, self.hosts = lab, name, hosts
        self.folder = lab.shared / name
        for folder in ("seen", "agents"):
            (self.folder / folder).mkdir(parents=True)
        self.script = self.folder / "job.sh"
        write(self.script, text)
        write(self.folder / "train.py", TRAIN)
        write(self.folder / "agent.py", REAL_AGENT if real_torchrun else AGENT)
        write(self.folder / "simulate", f'#!/bin/sh\nexec {sys.executable} {self.folder}/train.py "$@"\n')
        tools = self.folder / "bin"
        # The Python of the job has no rankup: a preflight would train on the CPUs of this machine.
        hidden = 'case "$*" in *"import rankup.doctor"*) exit 1 ;; esac'
        write(tools / "python", f'#!/bin/sh\n{hidden}\nexec {sys.executable} "$@"\n')
        # An agent that is real imports torch.
        agent_python = lab.python if real_torchrun else sys.executable
        write(tools / "torchrun", f'#!/bin/sh\nexec {agent_python} {self.folder}/agent.py "$@"\n')
        write(tools / "conda", f"#!/bin/sh\necho {lab.shared}/conda\n")
        for runtime in ("apptainer", "singularity"):
            write(tools / runtime, CONTAINER)
        self.env = {
            "PATH": f"{tools}:{Path(sys.executable).parent}:{SYSTEM_PATH}",
            "HOME": str(lab.shared),
            "LANG": "C.UTF-8",
            "MODULESHOME": str(lab.shared / "modules"),
        }
        self.job: BatchJob | None = None

    def submit(self, *options: str, text: str | None = None) -> str:
        """Submit it, or ``text`` in its place; returns the job's number."""
        if text is not None:
            write(self.script, text)
        log = self.folder / "job.log"
        command = ["env", "-C", self.folder, "sbatch", "--parsable", f"--output={log}", "--no-requeue"]
        done = self.lab.run(HEAD, [*command, *options, self.script], self.env)
        assert done.code == 0, done.err
        number = done.out.strip()
        self.job = BatchJob(number, log)
        return number

    def first_task_alone(self) -> None:
        """Of an array that has been submitted: the others are cancelled."""
        assert self.job is not None
        first, *others = (f"{self.job.id}_{task}" for task in range(10))
        done = self.lab.run(HEAD, ["scancel", *others])
        assert done.code == 0, done.err
        self.job = BatchJob(first, self.job.log)

    def seen(self, timeout: float = 240) -> list[dict[str, Any]]:
        """What the ranks say of themselves."""
        return self._records("seen", timeout)

    def agents(self, timeout: float = 240) -> list[dict[str, Any]]:
        return self._records("agents", timeout)

    def _records(self, folder: str, timeout: float) -> list[dict[str, Any]]:
        assert self.job is not None
        self.lab.wait(self.job, timeout)
        return [json.loads(path.read_text()) for path in (self.folder / folder).iterdir()]

    def log(self) -> str:
        path = self.folder / "job.log"
        return path.read_text()[-800:] if path.exists() else "(none)"

    def rehearse(self) -> Report:
        request = read_job(Document(str(self.script), self.script.read_text())).request
        job, _, _ = allocation_of(request, Sizes(hosts=self.hosts, cpus_per_node=CPUS), "job.sh")
        job = replace(job, addresses={node: self.lab.address(node) for node in self.lab.nodes})
        options = Options(slurm_version=(22, 5), seconds=120)
        return judged(self.script, rehearse(self.script, job, options, self.env), [])


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def golden(name: str, lab: Lab, folder: Path) -> str:
    """The whole script of a golden job, in ``folder``."""
    jobs = lab.shared / "jobs"
    jobs.mkdir(exist_ok=True)
    return script(name, jobs, folder / "runs" / "train" / "20260101-120000-abcd", folder)


def for_the_lab(text: str) -> str:
    """A script without what only its site has: types of GPUs, features of nodes, a quality of service, a network, paths
    in a container."""
    text = re.sub(r"^#SBATCH --(constraint|qos|network)=.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^INTERFACE=\S*", "INTERFACE=''", text, flags=re.MULTILINE).replace(
        "/usr/local/bin/torchrun", "torchrun"
    )
    return re.sub(r"^(#SBATCH --(?:gpus-per-node=|gres=gpu:))[a-z]\w*:", r"\1", text, flags=re.MULTILINE)


def without_binding(text: str) -> str:
    """A script for the lab: this machine has fewer cores than mpirun shall bind processes to."""
    return re.sub(r":PE=\d+ --bind-to core", " --bind-to none", text)


def rehearse_all(pairs: dict[str, Pair]) -> dict[str, Report]:
    with ThreadPoolExecutor(3) as pool:  # beside the jobs of the lab
        return dict(zip(pairs, pool.map(Pair.rehearse, pairs.values()), strict=True))
