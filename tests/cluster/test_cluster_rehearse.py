"""``rankup rehearse`` against reality: its table is what the processes of a real SLURM report of themselves.

Each script runs twice: rehearsed, and submitted to the lab,
whose nodes have the sizes of a site. In the lab ``train.py``
writes down its environment, and ``torchrun`` is a program that does the same in place of an agent (in two of our own
scripts it is the real one). Compared are hosts, ranks, sizes, devices, addresses, commands, folders, and all variables
of SLURM that do not differ from job to job.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import lab as lab_module
import pytest
from lab import HEAD, BatchJob, Lab, why_not

from rankup.check.document import Document
from rankup.check.facts.job.reader import read_job
from rankup.findings.finding import Severity
from rankup.rehearse.rehearse import Options, rehearse
from rankup.rehearse.report import Report, judged
from rankup.rehearse.request import Sizes, allocation_of

pytestmark = pytest.mark.cluster

GOLDENS = Path(__file__).parent.parent / "goldens" / "scripts"
SHAPES = {"cpus": 288, "gpus": 4}  # of a node, as large as any of the sites' below
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
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "seen", uuid.uuid4().hex)
with open(path, "w") as file:
    json.dump(facts, file)
"""
# A container's command, as far as our scripts use it: its options, the image, and what runs inside.
CONTAINER = """#!/bin/sh
shift
while case $1 in --nv) shift ;; --bind) shift 2 ;; *) false ;; esac; do :; done
shift
name=${1##*/}
shift
exec "$name" "$@"
"""
TRAIN = f"{RECORDER}\nif False:\n    import torch\n"

# The launches that work, and the mistakes that people make: (directives, script, findings).
EXPORTS = "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1) MASTER_PORT=29511\n"
RANKS = "export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID; exec python train.py"
EIGHT = "--nodes=2 --ntasks-per-node=4 --gpus-per-node=4"
AGENTS = "--nodes=2 --ntasks-per-node=1 --gpus-per-node=4 --cpus-per-task=16"
TORCHRUN = "torchrun --nnodes=2 --nproc_per_node=4 --master_addr=$MASTER_ADDR --master_port=29511"
SMALL = RANKS.replace("WORLD_SIZE=$SLURM_NTASKS", "")
SCRIPTS: dict[str, tuple[str, str, set[str]]] = {
    "one-task-per-gpu": (EIGHT, EXPORTS + f"srun bash -c '{RANKS}'", set()),
    "agents": (AGENTS, EXPORTS + f"srun bash -c '{TORCHRUN} --node_rank=$SLURM_NODEID train.py'", {"cpus-lost"}),
    "agents-in-a-larger-job": (
        EIGHT,
        EXPORTS + f"srun --ntasks=2 --ntasks-per-node=1 bash -c '{TORCHRUN} --node_rank=$SLURM_NODEID train.py'", set(),
    ),
    "agent-for-each-node": (
        AGENTS,
        EXPORTS + "i=0; for host in $(scontrol show hostnames); do\n"
        f"  srun -N1 -n1 -c16 -w $host {TORCHRUN} --node_rank=$i train.py &\n  i=$((i + 1))\ndone; wait",
        set(),
    ),
    "mpirun": (
        EIGHT,
        EXPORTS + "mpirun -np 8 --map-by ppr:4:node --bind-to none bash -c 'export RANK=$OMPI_COMM_WORLD_RANK "
        "WORLD_SIZE=$OMPI_COMM_WORLD_SIZE LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK; exec python train.py'",
        set(),
    ),
    "head-only": (AGENTS, EXPORTS + f"{TORCHRUN} --node_rank=0 train.py", {"missing-agents", "idle-nodes"}),
    "agents-as-many-as-gpus": (
        EIGHT, EXPORTS + f"srun --ntasks-per-node=1 bash -c '{TORCHRUN} --node_rank=$SLURM_NODEID train.py'",
        {"srun-warning", "too-many-agents", "doubled-node-rank", "shared-device"},
    ),
    "rank-expanded-early": (
        EIGHT, EXPORTS + f'srun bash -c "{RANKS}"', {"doubled-rank", "shared-device", "idle-gpus"},
    ),
    "node-rank-expanded-early": (
        AGENTS, EXPORTS + f'srun bash -c "{TORCHRUN} --node_rank=$SLURM_NODEID train.py"', {"doubled-node-rank",
        "cpus-lost"},
    ),
    "own-address": (
        EIGHT, f"srun bash -c 'export MASTER_ADDR=$(hostname) MASTER_PORT=29511; {RANKS}'", {"different-endpoints"},
    ),
    "too-many-tasks": (
        "--nodes=2 --ntasks-per-node=6 --gpus-per-node=4", EXPORTS + f"srun bash -c '{RANKS}'", {"no-such-device"},
    ),
    "gpus-per-task": (EIGHT.replace("-node=4 --gpus-per-node=4", "-node=4 --gpus-per-task=1"),
                      EXPORTS + f"srun bash -c '{RANKS}'", set()),
    "world-of-the-job": (
        EIGHT,
        EXPORTS + f"export WORLD_SIZE=$SLURM_NTASKS; srun -n4 bash -c '{SMALL}'",
        {"world-size-mismatch", "idle-gpus"},
    ),
    "one-after-another": (
        AGENTS, EXPORTS + "i=0; for host in $(scontrol show hostnames); do\n"
        f"  srun -N1 -n1 -w $host {TORCHRUN} --node_rank=$i train.py\n  i=$((i + 1))\ndone",
        {"would-hang", "cpus-lost"},
    ),
    "uneven": ("--nodes=2 --ntasks=3 --gres=gpu:4", EXPORTS + f"srun bash -c '{RANKS}'", {"idle-gpus"}),
    "refused": ("--nodes=2 --ntasks-per-node=1", EXPORTS + f"srun -n8 bash -c '{RANKS}'",
                {"step-refused", "srun-warning", "nothing-started", "script-failed"}),
    "lost-cpus": ("--nodes=2 --ntasks-per-node=2 --cpus-per-task=8", EXPORTS + f"srun bash -c '{RANKS}'",
    {"cpus-lost"}),
    "cyclic": (EIGHT, EXPORTS + f"srun --distribution=cyclic bash -c '{RANKS}'", set()),
}  # fmt: skip
#: Ours, with the directives of their sites. Where a script calls for it, torchrun is the real one.
OURS = (
    "della-two-nodes-torchrun", "cyclone-two-nodes-srun", "della-one-gpu-srun", "alliance-two-nodes-mpirun",
    "olivia-two-nodes-torchrun",
)  # fmt: skip
REAL_TORCHRUN = ("della-two-nodes-torchrun", "slurm-elastic")


@pytest.fixture(scope="module")
def site() -> Iterator[Lab]:
    """A lab whose nodes are as large as those of the sites."""
    reason = why_not()
    if reason:
        pytest.skip(f"no SLURM lab: {reason}")
    before = lab_module.CPUS_PER_NODE, lab_module.GPUS_PER_NODE
    lab_module.CPUS_PER_NODE, lab_module.GPUS_PER_NODE = SHAPES["cpus"], SHAPES["gpus"]
    lab = Lab(warm=True)
    try:
        lab.up()
        yield lab
    finally:
        lab.down()
        lab_module.CPUS_PER_NODE, lab_module.GPUS_PER_NODE = before


class Pair:
    """A script in a folder of its own, in the lab and in a rehearsal."""

    def __init__(self, lab: Lab, name: str, text: str, *, real_torchrun: bool = False) -> None:
        self.lab, self.name = lab, name
        self.folder = lab.shared / name
        (self.folder / "seen").mkdir(parents=True)
        self.script = self.folder / "job.sh"
        self.script.write_text(text)
        self.script.chmod(0o755)
        (self.folder / "train.py").write_text(TRAIN)
        self.tools = self.folder / "bin"
        self.tools.mkdir()
        write(self.tools / "python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        if not real_torchrun:
            (self.folder / "agent.py").write_text(RECORDER)
            write(self.tools / "torchrun", f'#!/bin/sh\nexec {sys.executable} {self.folder}/agent.py "$@"\n')
        write(self.tools / "apptainer", CONTAINER)
        self.path = f"{self.tools}:{Path(sys.executable).parent}:{lab_module.SYSTEM_PATH}"
        self.job: BatchJob | None = None

    def submit(self) -> None:
        log = self.folder / "job.log"
        options = [
            "--parsable",
            f"--output={log}",
            "--partition=main",
            "--mem=0",
            "--no-requeue",
            self.script,
        ]
        command = ["env", "-C", self.folder, "sbatch", *options]
        done = self.lab.run(HEAD, command, {"PATH": self.path})
        assert done.code == 0, done.err
        self.job = BatchJob(done.out.strip(), log)

    def seen(self) -> list[dict[str, Any]]:
        assert self.job is not None
        self.lab.wait(self.job, timeout=60)
        return [json.loads(path.read_text()) for path in (self.folder / "seen").iterdir()]

    def rehearse(self) -> Report:
        text = self.script.read_text()
        request = read_job(Document(str(self.script), text)).request
        sizes = Sizes(hosts="node[1-2]", cpus_per_node=SHAPES["cpus"])
        job, _, _ = allocation_of(request, sizes, "job.sh")
        job = replace(job, addresses={node: self.lab.address(node) for node in self.lab.nodes})
        env = {"PATH": self.path, "HOME": str(self.lab.shared), "LANG": "C.UTF-8"}
        return judged(
            self.script, rehearse(self.script, job, Options(slurm_version=(22, 5), seconds=120), env), []
        )


def write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


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


def golden(name: str, folder: Path) -> str:
    """A golden script, to run in ``folder`` on a machine without modules and with fewer cores."""
    text = (GOLDENS / f"{name}.sh").read_text()
    screen, follows, other = text.partition("# The functions of ")
    if follows:
        text = screen + (GOLDENS / other.strip()).read_text().partition("# The same in every job")[2]
    text = text.replace("/work/user/project", str(folder))
    text = re.sub(
        r"^ *(module load|conda activate|\. \"\$\(conda|\. \"\$HOME\"/venv).*$", "  true", text, flags=re.M
    )
    text = re.sub(r":PE=\d+ --bind-to core", " --bind-to none", text)
    return text.replace("seconds before the time limit", "s")


def test_the_table_is_what_the_processes_report(site: Lab):
    pairs = {}
    for name, (directives, body, _) in SCRIPTS.items():
        lines = "".join(f"#SBATCH {word}\n" for word in directives.split())
        pairs[name] = Pair(site, name, f"#!/bin/bash\n{lines}{body}\n")
    for pair in pairs.values():
        pair.submit()
    reports = rehearse_all(pairs)
    wrong = [
        line for name, pair in pairs.items() for line in differences(name, expected(reports[name]), pair)
    ]
    for name, report in reports.items():
        codes = {finding.code for finding in report.findings}
        if codes != SCRIPTS[name][2]:
            wrong.append(f"{name}: findings {sorted(codes)}, not {sorted(SCRIPTS[name][2])}")
    assert not wrong, "\n".join(wrong)


def test_our_own_scripts_start_what_their_rehearsal_shows(site: Lab):
    pairs = {}
    for name in (*OURS, "slurm-elastic"):
        pairs[name] = Pair(site, name, golden(name, site.shared / name), real_torchrun=name in REAL_TORCHRUN)
    reports = rehearse_all(pairs)  # first: what a run leaves in its run directory changes the next
    for pair in pairs.values():
        pair.submit()
    wrong = []
    for name, pair in pairs.items():
        report = reports[name]
        wrong += [
            f"{name}: {finding.code}" for finding in report.findings if finding.severity is Severity.ERROR
        ]
        if name not in REAL_TORCHRUN:
            wrong += differences(name, expected(report), pair)
            continue
        table = [(one.host, one.rank, one.local_rank, one.world_size) for one in processes(report)]
        workers = [
            (one["host"], *(int(one["env"][key]) for key in ("RANK", "LOCAL_RANK", "WORLD_SIZE")))
            for one in pair.seen()
        ]
        if name == "slurm-elastic":  # ranks by arrival: which node is first is not known
            table, workers = ([one[2:] for one in rows] for rows in (table, workers))
        if sorted(table) != sorted(workers):
            wrong.append(f"{name}: {table} rehearsed, {workers} seen")
    assert not wrong, "\n".join(wrong)


def rehearse_all(pairs: dict[str, Pair]) -> dict[str, Report]:
    with ThreadPoolExecutor(3) as pool:  # beside the jobs of the lab
        return dict(zip(pairs, pool.map(Pair.rehearse, pairs.values()), strict=True))


def ports(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Ports that no other job can get differ from run to run; so do the commands that hold them."""
    return sorted(
        tuple(re.sub(r"\b(1[5-9]|2\d|3[012])\d{3}\b", "PORT", word) if isinstance(word, str)
              else tuple(re.sub(r"\b(1[5-9]|2\d|3[012])\d{3}\b", "PORT", each) for each in word) for word in row)
        for row in rows
    )  # fmt: skip


def differences(name: str, table: list[tuple[Any, ...]], pair: Pair) -> list[str]:
    """What the rehearsal and the lab say differently."""
    seen = reported(pair.seen())
    if ports(table) == ports(seen):
        return []
    log = (pair.folder / "job.log").read_text()[-800:]
    pairs = zip_longest(table, seen, fillvalue=())
    wrong = [f"{name}: {len(table)} rehearsed, {len(seen)} seen; log: {log}"]
    for here, there in pairs:
        ours, theirs = {*map(str, here)}, {*map(str, there)}
        wrong.append(f"  {sorted(ours - theirs)} rehearsed, {sorted(theirs - ours)} seen")
    return wrong


def processes(report: Report) -> list[Any]:
    return [one for launch in report.launches for one in launch.processes]


def test_nothing_of_a_rehearsal_reaches_the_lab(site: Lab):
    """A rehearsal submits nothing and ends nothing, whatever stands in the script."""
    pair = Pair(
        site,
        "harmless",
        "#!/bin/bash\n#SBATCH -N1\nscancel 1; sbatch job.sh; rm -rf ..; srun python train.py\n",
    )
    report = pair.rehearse()
    assert pair.script.exists() and os.listdir(pair.folder / "seen") == []  # noqa: PTH208
    assert len(processes(report)) == 1
    assert site.run(HEAD, ["squeue", "--noheader"]).out == ""
