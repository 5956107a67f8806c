"""All golden scripts for SLURM: what their rehearsal shows is what the processes of a real SLURM say, in one file.

Each script is rendered from its job, whole, and for the lab's folders; modules, conda and containers are stand-ins, and
what only its site has (types of GPUs, features, qualities of service) is left out. ``NOT_RUN`` says what needs more.
torchrun is real. Jobs of one node take turns on the lab's two nodes: two of them on one node would get other GPUs.
``agree`` is *in full* where hosts, ranks, devices, commands, folders and variables are the same, *in part* where they
are but for what stands under ``not compared``, and *no* where anything differs.
"""

from __future__ import annotations

import contextlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from comparison import differences, expected, processes, real_row, table_row, unlike
from lab import HEAD, Lab
from rehearsed import CPUS, Pair, for_the_lab, golden, site_lab, without_binding

from goldens.jobs import CASES
from rankup.findings.finding import Severity
from rankup.rehearse.report import Report

GPUS = (4, 8)  # of a node: two labs, since an exclusive job gets all of them
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "rehearsals.json"
RUNTIME = "a runtime of containers that the lab does not have"
PLUGIN = "an option of srun that a plug-in has, which the lab does not have"
NODES = "more nodes than the lab has"
STAGED = "data and an environment that are staged, which the lab does not have"
NOT_RUN = {
    "perlmutter": RUNTIME,
    "clariden": PLUGIN,
    "slurm-pixi": "pixi, which the lab does not have",
    "slurm-podman-hpc": RUNTIME,
    "slurm-shifter": RUNTIME,
    "slurm-sarus": RUNTIME,
    "slurm-pyxis": PLUGIN,
    "slurm-edf": PLUGIN,
    "slurm-uenv": PLUGIN,
    "slurm-spare": NODES,
    "slurm-spare-srun": NODES,
    "slurm-numa": "torchrun's binding to the memory of GPUs, which needs CUDA",
    "slurm-stage": STAGED,
    "alliance-stage": STAGED,
    "lumi-srun": "a mask of cores that the machine of the lab does not have",
}
OF_SLURM = [
    name for name, (site, _) in CASES.items() if site not in ("pbs", "eap", "sockeye", "aurora", "local")
]
SLURM = [name for name in OF_SLURM if name not in NOT_RUN]
NOT_COMPARED = {
    "slurm-elastic": "which node has which ranks: torchrun numbers its agents by arrival, and the table says so",
    "slurm-array": "tasks 1 to 9 of the array: a rehearsal shows the first task, and says so",
    "slurm-preflight": "the ranks of the preflight: the job's Python has no rankup, and the script leaves it out",
}
BINDING = (
    "the binding of ranks to cores by mpirun: the machine of the lab has too few; it ran with --bind-to none"
)
SECONDS = 300  # at most, for a job and those before it


@pytest.mark.campaign
@pytest.mark.timeout(2400)
def test_every_golden_script_starts_what_its_rehearsal_shows():
    said: dict[str, dict[str, Any]] = {}
    for gpus in GPUS:
        names = [name for name in SLURM if (gpus_of(name) > GPUS[0]) == (gpus > GPUS[0])]
        with site_lab(gpus) as lab:
            pairs = {name: pair_of(name, lab, turn) for turn, name in enumerate(one_node_first(names))}
            reports = rehearsed_and_submitted(lab, pairs)
            said |= {name: outcome(pair, reports[name]) for name, pair in pairs.items()}
            version = lab.run(HEAD, ["sinfo", "--version"]).out.split()[-1]
    counts = {
        agree: sum(one["agree"] == agree for one in said.values()) for agree in ("in full", "in part", "no")
    }
    lab_says = (
        f"SLURM {version}, 2 nodes with {CPUS} CPUs and {GPUS[0]} or {GPUS[1]} GPUs each, all on one machine"
    )
    summary = {
        "date": date.today().isoformat(),
        "lab": lab_says,
        "goldens": len(OF_SLURM),
        "not run": NOT_RUN,
    }
    summary |= {"run": len(said), "agree": counts}
    RESULTS.write_text(json.dumps({**summary, "scripts": dict(sorted(said.items()))}, indent=1) + "\n")
    assert counts["no"] == 0, json.dumps(
        {name: one for name, one in said.items() if one["agree"] == "no"}, indent=1
    )


def nodes_of(name: str) -> int:
    return int(CASES[name][1].get("nodes", 1))


def gpus_of(name: str) -> int:
    return int(CASES[name][1].get("gpus_per_node", 0))


def one_node_first(names: list[str]) -> list[str]:
    """Two jobs of one node run at once; that which needs a reservation of all nodes is the last."""
    return sorted(names, key=lambda name: (name == "slurm-conda-directive", nodes_of(name)))


def pair_of(name: str, lab: Lab, turn: int) -> Pair:
    hosts = "node[1-2]" if nodes_of(name) == 2 else lab.nodes[turn % 2]
    text = for_the_lab(golden(name, lab, lab.shared / name))
    return Pair(lab, name, text, real_torchrun=True, hosts=hosts)


def rehearsed_and_submitted(lab: Lab, pairs: dict[str, Pair]) -> dict[str, Report]:
    """Each is rehearsed before it runs: what a run leaves in its run directory changes the next."""
    reports: dict[str, Report] = {}
    last: dict[str, str] = {}  # node → its latest job
    with ThreadPoolExecutor(2) as pool:
        for (name, pair), report in zip(pairs.items(), pool.map(Pair.rehearse, pairs.values()), strict=True):
            reports[name] = report
            hosts = lab.nodes if nodes_of(name) == 2 else (pair.hosts,)
            options = [f"--nodelist={pair.hosts}"] if len(hosts) == 1 else []
            before = sorted({last[host] for host in hosts if host in last})
            if name == "slurm-conda-directive":
                reserve(lab, list(pairs.values()))
            elif before:
                options.append(f"--dependency=afterany:{':'.join(before)}")
            number = pair.submit(*options, text=without_binding(pair.script.read_text()))
            if name == "slurm-array":
                pair.first_task_alone()
            last |= dict.fromkeys(hosts, number)
    return reports


def reserve(lab: Lab, pairs: list[Pair]) -> None:
    """When all others have ended, as they have no part in it."""
    for pair in pairs:
        if pair.job is not None:
            with contextlib.suppress(TimeoutError):  # ``outcome`` says so
                lab.wait(pair.job, SECONDS)
    course = ["reservationname=course", "users=root", "starttime=now", "duration=60", "nodes=ALL"]
    done = lab.run(HEAD, ["scontrol", "create", "reservation", *course])
    assert done.code == 0, done.err


def outcome(pair: Pair, report: Report) -> dict[str, Any]:
    """What stands in the results of one golden."""
    try:
        agents, ranks = pair.agents(SECONDS), pair.seen(SECONDS)
    except TimeoutError as error:
        return {"agree": "no", "differences": [str(error), pair.log()]}
    wrong = [finding.code for finding in report.findings if finding.severity is Severity.ERROR]
    wrong += differences("started", expected(report), agents or ranks, pair)
    table, seen = sorted(map(table_row, processes(report))), sorted(map(real_row, ranks))
    if pair.name == "slurm-elastic":
        table, seen = sorted(row[2:6] for row in table), sorted(row[2:6] for row in seen)
    wrong += unlike("ranks", table, seen)
    if not seen:
        wrong.append(f"no rank has run: {pair.log()}")
    left_out = NOT_COMPARED.get(pair.name, "")
    if "--bind-to core" in golden(pair.name, pair.lab, pair.folder):
        left_out = BINDING
    said: dict[str, Any] = {"agree": "no" if wrong else "in part" if left_out else "in full"}
    said |= {"nodes": len({row["host"] for row in ranks}), "agents": len(agents), "ranks": len(ranks)}
    if left_out:
        said["not compared"] = left_out
    return said | ({"differences": wrong} if wrong else {})
