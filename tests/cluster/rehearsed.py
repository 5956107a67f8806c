"""A job script in a folder of its own, twice: in a rehearsal, and in a lab whose nodes are as large as a site's."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from lab import HEAD, SYSTEM_PATH, BatchJob, Lab, why_not

from goldens.jobs import script
from rankup.check.document import Document
from rankup.check.facts.job.reader import read_job
from rankup.rehearse.processes import Process
from rankup.rehearse.rehearse import Options, rehearse
from rankup.rehearse.report import Report, judged
from rankup.rehearse.request import Sizes, allocation_of

CPUS, GPUS = 288, 4  # of a node: as many as the largest of the sites has
#: The variables that are compared: those that do not differ from job to job.
COMPARED = [
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_NUM_NODES",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_STEP_NODELIST",
    "SLURM_NNODES",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_NODELIST",
    "SLURM_NODELIST",
    "SLURM_TASKS_PER_NODE",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPUS_ON_NODE",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_GTIDS",
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "SLURM_DISTRIBUTION",
    "SLURM_GPUS_ON_NODE",
    "SLURM_STEP_GPUS",
    "SLURM_JOB_GPUS",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS",
    "SLURMD_NODENAME",
    "SLURMD_TRES_BIND",
    "SLURM_LAUNCH_NODE_IPADDR",
    "HOSTNAME",
    "SLURM_SUBMIT_DIR",
    "SLURM_JOB_NAME",
    "SLURM_JOB_PARTITION",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_ARRAY_TASK_COUNT",
    "SLURM_ARRAY_TASK_MIN",
    "SLURM_ARRAY_TASK_MAX",
    "SLURM_ARRAY_TASK_STEP",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "NODE_RANK",
    "MASTER_ADDR",
    "OMP_NUM_THREADS",
    "TMPDIR",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "OMPI_COMM_WORLD_NODE_RANK",
]
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
def site_lab() -> Iterator[Lab]:
    """A lab whose nodes are as large as those of the sites, with their partitions and what their scripts load."""
    reason = why_not()
    if reason:
        pytest.skip(f"no SLURM lab: {reason}")
    lab = Lab(warm=True, cpus=CPUS, gpus=GPUS, memory=1_000_000, partitions=("gpu", "cpu", "accel"))
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
        write(tools / "torchrun", f'#!/bin/sh\nexec {sys.executable} {self.folder}/agent.py "$@"\n')
        write(tools / "conda", f"#!/bin/sh\necho {lab.shared}/conda\n")
        write(tools / "apptainer", CONTAINER)
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

    def seen(self, timeout: float = 60) -> list[dict[str, Any]]:
        """What the ranks say of themselves."""
        return self._records("seen", timeout)

    def agents(self, timeout: float = 60) -> list[dict[str, Any]]:
        return self._records("agents", timeout)

    def _records(self, folder: str, timeout: float) -> list[dict[str, Any]]:
        assert self.job is not None
        self.lab.wait(self.job, timeout)
        return [json.loads(path.read_text()) for path in (self.folder / folder).iterdir()]

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


def without_binding(text: str) -> str:
    """A script for the lab: this machine has fewer cores than mpirun shall bind processes to."""
    return re.sub(r":PE=\d+ --bind-to core", " --bind-to none", text)


def rehearse_all(pairs: dict[str, Pair]) -> dict[str, Report]:
    with ThreadPoolExecutor(3) as pool:  # beside the jobs of the lab
        return dict(zip(pairs, pool.map(Pair.rehearse, pairs.values()), strict=True))


def reported(facts: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What the processes of the lab say, sorted."""
    return sorted((one["host"], tuple(one["argv"]), one["cwd"], *environment(one["env"])) for one in facts)


def environment(env: dict[str, str]) -> list[str]:
    return [f"{name}={env[name]}" for name in COMPARED if name in env]


def expected(report: Report) -> list[tuple[Any, ...]]:
    """The same of a rehearsal: of the programs and agents that it has recorded."""
    found = []
    for launch in report.launches:
        for one in launch.started:
            argv = one.event["argv"][1:] if one.agent is not None else one.event["argv"][2:]
            found.append((one.host, tuple(argv), one.event["cwd"], *environment(dict(one.environment))))
    return sorted(found)


def processes(report: Report) -> list[Process]:
    return [one for launch in report.launches for one in launch.processes]


def table_row(one: Process) -> tuple[Any, ...]:
    """A line of the table: host, node, rank, local rank, world size, GPU, where it meets, arguments, folder."""
    words = re.split(r"(?:train\.py|simulate) ", one.command, maxsplit=1)[-1]
    meeting = one.meeting.rpartition(":")[0]
    numbers = (one.node_rank, one.rank, one.local_rank, one.world_size)
    return (one.host, *numbers, one.device, meeting, words, one.folder)


def real_row(one: dict[str, Any]) -> tuple[Any, ...]:
    """The same, as a process of the lab says it."""
    env = one["env"]
    visible = env.get("CUDA_VISIBLE_DEVICES", "").split(",")
    local = int(env["LOCAL_RANK"])
    device = (visible[local] if local < len(visible) else "") or "-"
    numbers = (
        int(env.get("GROUP_RANK", env.get("NODE_RANK", -1))),
        int(env["RANK"]),
        local,
        int(env["WORLD_SIZE"]),
    )
    return (one["host"], *numbers, device, env.get("MASTER_ADDR", ""), " ".join(one["argv"]), one["cwd"])


def unlike(what: str, table: Sequence[tuple[Any, ...]], seen: Sequence[tuple[Any, ...]]) -> list[str]:
    """The lines of two sorted lists that differ."""
    if list(table) == list(seen):
        return []
    wrong = [f"{what}: {len(table)} rehearsed, {len(seen)} seen"]
    for here, there in zip_longest(table, seen, fillvalue=()):
        ours, theirs = {*map(str, here)}, {*map(str, there)}
        if ours != theirs:
            wrong.append(f"  {sorted(ours - theirs)} rehearsed, {sorted(theirs - ours)} seen")
    return wrong


def differences(
    name: str, table: list[tuple[Any, ...]], facts: list[dict[str, Any]], pair: Pair
) -> list[str]:
    """What the rehearsal and the lab say differently of programs or agents."""
    wrong = unlike(name, ports(table), ports(reported(facts)))
    return [*wrong, f"log: {log_of(pair)}"] if wrong else []


def log_of(pair: Pair) -> str:
    path = pair.folder / "job.log"
    return path.read_text()[-800:] if path.exists() else "(none)"


def ports(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Ports that no other job can get differ from run to run; so do the commands that hold them."""
    return sorted(
        tuple(re.sub(r"\b(1[5-9]|2\d|3[012])\d{3}\b", "PORT", word) if isinstance(word, str)
              else tuple(re.sub(r"\b(1[5-9]|2\d|3[012])\d{3}\b", "PORT", each) for each in word) for word in row)
        for row in rows
    )  # fmt: skip
