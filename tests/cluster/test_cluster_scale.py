"""A study through the real scheduler: nodes × processes as jobs, left alone in the middle, resumed, reported."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from cluster_jobs import rankup
from lab import HEAD, Lab

pytestmark = pytest.mark.cluster

SCALE = ("scale", "linear", "--site", "slurm", "--time", "5m", "--set", "samples=256", "--epochs", "2")


def study_of(cluster: Lab, name: str) -> Path:
    (folder,) = (cluster.shared / "runs" / f"scale-{name}").iterdir()
    return folder


def test_a_study_over_nodes_and_processes_goes_on_after_a_logout(cluster: Lab):
    """A grid of 1 and 2 nodes × 1 and 2 processes: a warm-up and a run of each are 8 jobs, at most two at once."""
    grid = ("--grid", "nodes=1,2", "nproc=1,2", "--repeats", "1", "--at-once", "2", "--name", "grid")
    words = [cluster.python, "-m", "rankup", *SCALE, *grid, "--runs-root", str(cluster.shared / "runs")]
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
        out, err = client.communicate(timeout=30)
    finally:
        client.kill()
    assert client.returncode == 130, err
    assert "Traceback" not in err and out == ""
    assert "stay in the queue" in err and "rankup scale --resume" in err
    folder = study_of(cluster, "grid")
    done = rankup(cluster, "scale", "--resume", str(folder), "--json", timeout=120)
    results = json.loads((folder / "results.json").read_text())
    configurations = results["configurations"]
    assert [one["asked"] for one in configurations] == [
        {"nodes": nodes, "nproc": nproc} for nodes in (1, 2) for nproc in (1, 2)
    ], done.err
    assert [(run["nodes"], run["processes"]) for one in configurations for run in one["runs"]] == [
        (1, 1), (1, 2), (2, 2), (2, 4),
    ], done.out + done.err  # fmt: skip
    assert all(one["runs"][0]["breakdown"]["communication"] > 0 for one in configurations[1:])
    assert len(list((folder / "trials").iterdir())) == 8
    assert "where the time of a step goes" in (folder / "table.txt").read_text()


def _submitted(cluster: Lab, number: int) -> bool:
    files = list(cluster.shared.glob("runs/scale-grid/*/trials.jsonl"))
    return bool(files) and files[0].read_text().count('"began"') == number


def test_in_an_allocation_a_job_gets_the_first_nodes_that_it_asks_for(cluster: Lab):
    (cluster.shared / "where.py").write_text("import os\nprint('ran on', os.uname().nodename, flush=True)\n")
    python = f"{cluster.python} -m rankup run --runs-root runs --name part"
    text = f"#!/bin/bash\n{python} --nnodes 2 where.py\n{python} --nnodes 1 where.py\n{python} --nnodes 3 where.py\n"
    job = cluster.sbatch(text, "-N2", "--ntasks-per-node=1", "--cpus-per-task=4")
    cluster.wait(job, timeout=60)
    said = job.log.read_text()
    assert said.count("ran on node1") == 2 and said.count("ran on node2") == 1, said
    assert "asks for 3 nodes, and this allocation has 2" in said
