"""``rankup rehearse`` against reality: its table is what the processes of a real SLURM report of themselves.

Each script runs twice: rehearsed, and submitted to the lab,
whose nodes have the sizes of a site. In the lab ``train.py``
writes down its environment, and ``torchrun`` does the same; in one of our own scripts it then starts its ranks.
Compared are hosts, ranks, sizes, devices, addresses, commands, folders, and all variables of SLURM that do not differ
from job to job. ``tests/campaign/test_rehearse_goldens.py`` compares all golden scripts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pytest
from comparison import differences, expected, processes, real_row, table_row, unlike
from lab import HEAD, Lab
from rehearsed import Pair, golden, rehearse_all, site_lab, without_binding

from rankup.findings.finding import Severity

pytestmark = pytest.mark.cluster

# The launches that work, and the mistakes that people make: (directives, script, findings).
EXPORTS = "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1) MASTER_PORT=29511\n"
RANKS = "export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID; exec python train.py"
FOUR = "--nodes=2 --ntasks-per-node=2 --gpus-per-node=2"
EIGHT = "--nodes=2 --ntasks-per-node=4 --gpus-per-node=4"
AGENTS = "--nodes=2 --ntasks-per-node=1 --gpus-per-node=4 --cpus-per-task=16"
TORCHRUN = "torchrun --nnodes=2 --nproc_per_node=4 --master_addr=$MASTER_ADDR --master_port=29511"
SMALL = RANKS.replace("WORLD_SIZE=$SLURM_NTASKS", "")
SCRIPTS: dict[str, tuple[str, str, set[str]]] = {
    "one-task-per-gpu": (FOUR, EXPORTS + f"srun bash -c '{RANKS}'", set()),
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
        FOUR,
        EXPORTS + "mpirun -np 4 --map-by ppr:2:node --bind-to none bash -c 'export RANK=$OMPI_COMM_WORLD_RANK "
        "WORLD_SIZE=$OMPI_COMM_WORLD_SIZE LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK; exec python train.py'",
        set(),
    ),
    "head-only": (AGENTS, EXPORTS + f"{TORCHRUN} --node_rank=0 train.py", {"missing-agents", "idle-nodes"}),
    "agents-as-many-as-gpus": (
        EIGHT, EXPORTS + f"srun --ntasks-per-node=1 bash -c '{TORCHRUN} --node_rank=$SLURM_NODEID train.py'",
        {"srun-warning", "too-many-agents"},
    ),
    "rank-expanded-early": (
        FOUR, EXPORTS + f'srun bash -c "{RANKS}"', {"doubled-rank", "shared-device", "idle-gpus"},
    ),
    "node-rank-expanded-early": (
        AGENTS, EXPORTS + f'srun bash -c "{TORCHRUN} --node_rank=$SLURM_NODEID train.py"', {"doubled-node-rank",
        "cpus-lost"},
    ),
    "own-address": (
        FOUR, f"srun bash -c 'export MASTER_ADDR=$(hostname) MASTER_PORT=29511; {RANKS}'", {"different-endpoints"},
    ),
    "too-many-tasks": (
        "--nodes=2 --ntasks-per-node=3 --gpus-per-node=2", EXPORTS + f"srun bash -c '{RANKS}'", {"no-such-device"},
    ),
    "gpus-per-task": (FOUR.replace("-node=2 --gpus-per-node=2", "-node=2 --gpus-per-task=1"),
                      EXPORTS + f"srun bash -c '{RANKS}'", set()),
    "world-of-the-job": (
        FOUR,
        EXPORTS + f"export WORLD_SIZE=$SLURM_NTASKS; srun -n2 bash -c '{SMALL}'",
        {"world-size-mismatch", "idle-gpus"},
    ),
    "one-after-another": (
        AGENTS, EXPORTS + "i=0; for host in $(scontrol show hostnames); do\n"
        f"  srun -N1 -n1 -w $host {TORCHRUN} --node_rank=$i train.py\n  i=$((i + 1))\ndone",
        {"would-hang", "cpus-lost"},
    ),
    "uneven": ("--nodes=2 --ntasks=3 --gres=gpu:4", EXPORTS + f"srun bash -c '{RANKS}'", {"idle-gpus"}),
    "refused": ("--nodes=2 --ntasks-per-node=1", EXPORTS + f"srun -n8 bash -c '{RANKS}'",
                {"step-refused", "srun-warning"}),
    "lost-cpus": ("--nodes=2 --ntasks-per-node=2 --cpus-per-task=8", EXPORTS + f"srun bash -c '{RANKS}'",
    {"cpus-lost"}),
    "cyclic": (FOUR, EXPORTS + f"srun --distribution=cyclic bash -c '{RANKS}'", set()),
}  # fmt: skip
#: A launch of each kind, and the mistakes that only a table of all processes shows; the campaign has the others.
IN_SHORT = (
    "one-task-per-gpu", "agents", "mpirun", "agents-as-many-as-gpus", "rank-expanded-early", "one-after-another",
    "refused", "uneven", "cyclic",
)  # fmt: skip
#: Golden scripts, of which tests/campaign/test_rehearse_goldens.py has all. In one of them torchrun is real.
OURS = ("cyclone-two-nodes-torchrun", "della-two-nodes-srun")
REAL_TORCHRUN = "cyclone-two-nodes-torchrun"


@pytest.fixture(scope="module")
def site() -> Iterator[Lab]:
    with site_lab() as lab:
        yield lab


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [IN_SHORT, pytest.param([*SCRIPTS.keys() - {*IN_SHORT}], marks=pytest.mark.campaign)],
    ids=["in short", "the others"],
)
def test_the_table_is_what_the_processes_report(site: Lab, names: Sequence[str]):
    pairs = {}
    for name in sorted(names):
        directives, body, _ = SCRIPTS[name]
        lines = "".join(f"#SBATCH {word}\n" for word in directives.split())
        pairs[name] = Pair(site, name, f"#!/bin/bash\n{lines}{body}\n")
    before = ""
    for pair in pairs.values():  # one after another: of two on one node the second would get other GPUs
        before = pair.submit(*([f"--dependency=afterany:{before}"] if before else []))
    reports = rehearse_all(pairs)
    wrong = []
    for name, pair in pairs.items():
        facts = [*pair.agents(), *pair.seen()]
        wrong += differences(name, expected(reports[name]), facts, pair)
    for name, report in reports.items():
        codes = {finding.code for finding in report.findings}
        if codes != SCRIPTS[name][2]:
            wrong.append(f"{name}: findings {sorted(codes)}, not {sorted(SCRIPTS[name][2])}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_our_own_scripts_start_what_their_rehearsal_shows(site: Lab):
    pairs = {}
    for name in OURS:
        text = golden(name, site, site.shared / name)
        pairs[name] = Pair(site, name, text, real_torchrun=name == REAL_TORCHRUN)
    reports = rehearse_all(pairs)  # first: what a run leaves in its run directory changes the next
    for pair in pairs.values():
        pair.submit(text=without_binding(pair.script.read_text()))
    wrong = []
    for name, pair in pairs.items():
        report = reports[name]
        wrong += [
            f"{name}: {finding.code}" for finding in report.findings if finding.severity is Severity.ERROR
        ]
        agents = pair.agents()
        wrong += differences(name, expected(report), agents or pair.seen(), pair)
        if name == REAL_TORCHRUN:
            table = sorted(map(table_row, processes(report)))
            wrong += unlike(f"{name}, ranks", table, sorted(map(real_row, pair.seen())))
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
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
