"""A study through the real scheduler: nodes × processes as jobs, left alone in the middle, resumed, reported."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cluster_jobs import rankup
from lab import HEAD, SYSTEM_PATH, Lab

from rankup.core.shell import Completed

pytestmark = pytest.mark.cluster


# A script of one's own that prints its time: one of its kinds fails.
OWN = """
import sys, time

if sys.argv[1] == "bad":
    raise SystemExit("no such kind")
began = time.perf_counter()
time.sleep(0.2)
print(f"Training time = {time.perf_counter() - began:.3f} s")
"""
OWN_SCALE = ("scale", "--site", "slurm", "--time", "5m", "--metric", r"Training time = ([0-9.]+)")


def study_of(cluster: Lab, name: str) -> Path:
    (folder,) = (cluster.shared / "runs" / f"scale-{name}").iterdir()
    return folder


# 256 KB of gradients in each step, and hardly anything to compute: at 25 Mbit/s they take 84 ms at least.
WIDE = """
import torch
from rankup import ResidentData

class Wide:
    def model(self):
        return torch.nn.Linear(256, 256)
    def datasets(self, source):
        x = torch.randn(256, 256, generator=torch.Generator().manual_seed(1))
        return ResidentData(x, x), ResidentData(x[:16], x[:16])
    def loss(self, output, target):
        return (output - target).square().mean()
    def correct(self, output, target):
        return ((output - target).abs().amax(1) < 1).sum()
"""
SCALE = ("scale", "wide:Wide", "--site", "slurm", "--time", "5m", "--repeats", "1")
TRAINS = ("--epochs", "1", "--global-batch", "16", "--threads", "1")


@dataclass
class Client:
    """One that has been interrupted: what it said, and what the one said that went on."""

    code: int
    out: str
    err: str
    later: Completed


@pytest.fixture(scope="module")
def grid(cluster: Lab) -> Client:
    """A grid of 1 and 2 nodes × 1 and 2 processes: a warm-up and a run of each are 8 jobs, at most two at once."""
    (cluster.shared / "wide.py").write_text(WIDE)
    how = ("--grid", "nodes=1,2", "nproc=1,2", "--at-once", "2", "--name", "grid")
    root = ("--runs-root", str(cluster.shared / "runs"))
    words = [cluster.python, "-m", "rankup", *SCALE, *TRAINS, *how, *root]
    words = ["bash", "-c", 'echo "$$" >client; exec "$@"', "bash", *words]
    client = subprocess.Popen(
        cluster.enter(HEAD, words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        cluster.until(lambda: client.poll() is not None or _submitted(cluster, 8))
        # Not to our child, which is nsenter.
        cluster.run(HEAD, ["kill", "-INT", (cluster.shared / "client").read_text().strip()])
        out, err = client.communicate(timeout=240)
    finally:
        client.kill()
    later = rankup(cluster, "scale", "--resume", str(study_of(cluster, "grid")), "--json", timeout=120)
    return Client(client.returncode, out, err, later)


@pytest.mark.slow
def test_a_study_over_nodes_and_processes_goes_on_after_a_logout(cluster: Lab, grid: Client):
    assert grid.code == 130, grid.err
    assert "Traceback" not in grid.err and grid.out == ""
    assert "stay in the queue" in grid.err and "rankup scale --resume" in grid.err
    folder = study_of(cluster, "grid")
    configurations = _results(cluster, "grid")["configurations"]
    assert [one["asked"] for one in configurations] == [
        {"nodes": nodes, "nproc": nproc} for nodes in (1, 2) for nproc in (1, 2)
    ], grid.later.err
    assert [(run["nodes"], run["processes"]) for one in configurations for run in one["runs"]] == [
        (1, 1), (1, 2), (2, 2), (2, 4),
    ], grid.later.out + grid.later.err  # fmt: skip
    parts = {"data", "compute", "communication", "optimizer"}
    assert all(parts <= one["runs"][0]["breakdown"].keys() for one in configurations)
    assert len(list((folder / "trials").iterdir())) == 8
    assert "where the time of a step goes" in (folder / "table.txt").read_text()


def test_a_study_that_is_killed_while_sbatch_answers_submits_no_job_twice(cluster: Lab):
    """SIGKILL in the moment when SLURM has the job, and nobody has noted its id."""
    folder = cluster.shared / "bin"
    folder.mkdir()
    script = (
        '#!/bin/bash\necho >>calls\nsbatch=/usr/bin/sbatch\n[ "$(wc -l <calls)" = 2 ] || exec $sbatch "$@"\n'
    )
    (folder / "sbatch").write_text(script + '$sbatch "$@" >second; kill -KILL "$PPID"\n')
    (folder / "sbatch").chmod(0o755)
    env = {"PATH": f"{folder}:{SYSTEM_PATH}"}
    (cluster.shared / "own.py").write_text(OWN)
    how = (*OWN_SCALE, "--grid", "nproc=1", "--repeats", "1", "--name", "killed")
    words = [cluster.python, "-m", "rankup", *how, "own.py", "good"]

    killed = cluster.run(HEAD, words, env)
    assert killed.code in (137, -9), killed.err
    second = (cluster.shared / "second").read_text().strip()
    study = study_of(cluster, "killed")
    assert '"submitting"' in (study / "trials.jsonl").read_text().splitlines()[-1]

    done = cluster.run(
        HEAD, [cluster.python, "-m", "rankup", "scale", "--resume", str(study)], env, timeout=120
    )
    assert (cluster.shared / "calls").read_text().count("\n") == 2, done.out + done.err
    began = [
        json.loads(line) for line in (study / "trials.jsonl").read_text().splitlines() if '"began"' in line
    ]
    assert [one["job"] for one in began].count(second) == 1 and len(began) == 2
    assert not (study / "logs").exists() and not (study / "records").exists()


@pytest.mark.slow
def test_a_slow_link_between_the_nodes_is_named_as_the_cause(cluster: Lab, grid: Client):
    """The same work as in ``grid``."""
    _, _, fast, _ = _results(cluster, "grid")["configurations"]
    assert fast["asked"] == {"nodes": 2, "nproc": 1}, grid.later.err
    with cluster.slowed("25mbit"):
        done = rankup(cluster, *SCALE, *TRAINS, "--grid", "nodes=1,2", "--name", "slow", timeout=120)
    assert (study_of(cluster, "slow") / "results.json").exists(), done.out + done.err
    slow = _results(cluster, "slow")

    before = _parts(fast)
    one, two = map(_parts, slow["configurations"])
    # On a busy machine the difference that is the communication over the fast link may be lost in the noise: 0.
    assert one["communication"] == 0 <= before["communication"] < two["communication"]
    assert (
        two["communication"] > 0.06
    )  # no time that a fast machine can beat: it is what the limit lets through
    assert two["communication"] > two["compute"] + two["data"] + two["optimizer"]
    (limit,) = [one for one in slow["findings"] if one["code"] == "network-limits"]
    assert "2 × 1 processes: the network takes" in limit["message"]
    folder = study_of(cluster, "slow")
    assert "2 × 1 processes: the network takes" in (folder / "table.txt").read_text()
    assert "the network takes" in (folder / "report" / "report.html").read_text()


def _results(cluster: Lab, name: str) -> dict[str, Any]:
    results = json.loads((study_of(cluster, name) / "results.json").read_text())
    assert isinstance(results, dict)
    return results


def _parts(configuration: dict[str, Any]) -> dict[str, float]:
    """Seconds of a step by part."""
    parts = configuration["runs"][0]["breakdown"]
    assert isinstance(parts, dict)
    return parts


def _submitted(cluster: Lab, number: int) -> bool:
    files = list(cluster.shared.glob("runs/scale-grid/*/trials.jsonl"))
    return bool(files) and files[0].read_text().count('"began"') == number


def test_in_an_allocation_a_job_gets_the_first_nodes_that_it_asks_for(cluster: Lab):
    (cluster.shared / "where.py").write_text("import os\nprint('ran on', os.uname().nodename, flush=True)\n")
    python = f"{cluster.python} -m rankup run --runs-root runs --name part"
    text = f"#!/bin/bash\n{python} --nnodes 2 where.py\n{python} --nnodes 1 where.py\n{python} --nnodes 3 where.py\n"
    job = cluster.sbatch(text, "-N2", "--ntasks-per-node=1", "--cpus-per-task=4")
    cluster.wait(job, timeout=240)
    said = job.log.read_text()
    assert said.count("ran on node1") == 2 and said.count("ran on node2") == 1, said
    assert "asks for 3 nodes, and this allocation has 2" in said


def test_predict_asks_slurm_how_long_a_job_of_each_size_would_wait(cluster: Lab):
    busy = cluster.sbatch("#!/bin/bash\nsleep 100\n", "-N2", "--exclusive", "--time=10")
    try:
        cluster.until(lambda: cluster.state(busy) == "RUNNING")
        words = (
            "predict",
            "--points",
            "1x1:100 2x1:180",
            "--to",
            "2x1,4x1",
            "--site",
            "slurm",
            "--time",
            "5m",
        )
        done = rankup(cluster, *words, "--scaling", "weak", "--json")
    finally:
        cluster.run(HEAD, ["scancel", busy.id])
        cluster.wait(busy)
    possible, impossible = json.loads(done.out)["queue"]
    assert possible["nodes"] == 2 and 0 < possible["seconds"] <= 600, done.out + done.err
    assert impossible["nodes"] == 4 and impossible["seconds"] is None and "no node" in impossible["reason"]
    assert (
        cluster.run(HEAD, ["squeue", "--noheader", "--name=true,predict"]).out == ""
    )  # nothing was submitted


@pytest.mark.slow
def test_a_kind_that_fails_and_a_job_that_is_cancelled_by_hand_cost_themselves_alone(cluster: Lab):
    (cluster.shared / "own.py").write_text(OWN)
    grid = ("--grid", "nproc=1", "kind=good,bad,gone", "--repeats", "1", "--at-once", "1", "--name", "own")
    root = ("--runs-root", str(cluster.shared / "runs"))
    words = [cluster.python, "-m", "rankup", *OWN_SCALE, *grid, *root, "own.py", "{kind}"]
    client = subprocess.Popen(
        cluster.enter(HEAD, words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        cluster.until(lambda: client.poll() is not None or len(_jobs(cluster, "own")) == 6)
        jobs = _jobs(cluster, "own")
        waiting = next(job for point, repeat, job in jobs if point.get("kind") == "gone" and repeat == 0)
        cluster.run(HEAD, ["scancel", waiting])
        out, err = client.communicate(timeout=120)
    finally:
        client.kill()
    assert client.returncode == 1, out + err
    assert "Traceback" not in out + err
    results = json.loads((study_of(cluster, "own") / "results.json").read_text())
    good, bad, gone = results["configurations"]
    (run,) = good["runs"]
    assert run["seconds"] >= 0.2 and not good["failure"]
    assert not bad["runs"] and "exit code 1" in bad["failure"]["message"]
    # Its repeat was in the queue already.
    assert "the warm-up failed" in gone["failure"]["message"] and "cancelled" in gone["failure"]["message"], (
        gone
    )
    assert "speed-up" not in out.replace("no speed-up", "")


def _jobs(cluster: Lab, name: str) -> list[tuple[dict[str, Any], int, str]]:
    """(configuration, repeat, job) of each job that the study has submitted."""
    folder = cluster.shared / "runs" / f"scale-{name}"
    files = list(folder.glob("*/trials.jsonl")) if folder.exists() else []
    lines = files[0].read_text().splitlines() if files else []
    began = [one for one in map(json.loads, lines) if one.get("job")]
    return [(dict(one.get("point", {})), one.get("repeat", -1), one["job"]) for one in began]
