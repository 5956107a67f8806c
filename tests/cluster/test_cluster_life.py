"""Jobs on a real SLURM: arrays, dependencies, cancelling, submits from inside, crashed nodes."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from cluster_jobs import SITE, log, rankup, submit
from lab import Lab

pytestmark = pytest.mark.cluster


@pytest.fixture
def script(cluster: Lab) -> Path:
    path = cluster.shared / "step.py"
    path.write_text(
        "import os, sys, time\n"
        "words = sys.argv[1:]\n"
        "print('task', os.environ.get('RANKUP_TASK'), 'tasks per node', os.environ.get('SLURM_NTASKS_PER_NODE'),\n"
        "      'rank', os.environ.get('RANK'), flush=True)\n"
        "if 'wait' in words: time.sleep(300)\n"
        "sys.exit(int(words[0]))\n"
    )
    return path


def test_tasks_of_an_array_run_each_in_a_directory_and_a_log_of_its_own(cluster: Lab, script: Path):
    answer = submit(cluster, "--name", "array", "--array", "1-3%2", "step.py", "0")
    done = rankup(cluster, "logs", "--follow", answer["run"], timeout=100)
    assert done.code == 0, done.out + done.err
    for task in ("1", "2", "3"):
        assert f"task {task} " in log(answer, f"job-{task}.log")
        assert (Path(answer["run"]) / f"task-{task}" / "outcome").read_text() == "done\n"


def test_after_waits_for_a_job_to_end_well_and_never_runs_after_a_failed_one(cluster: Lab, script: Path):
    good = submit(cluster, "--name", "good", "step.py", "0")
    bad = submit(cluster, "--name", "bad", "step.py", "4")
    after_good = submit(cluster, "--name", "after-good", "--after", good["job"], "step.py", "0")
    after_bad = submit(cluster, "--name", "after-bad", "--after", bad["job"], "step.py", "0")
    assert rankup(cluster, "logs", "-f", after_good["run"], timeout=100).code == 0
    done = rankup(cluster, "logs", "-f", bad["run"], timeout=100)
    assert done.code == 4, done.out + done.err
    cluster.until(lambda: "PENDING" not in cluster.state_of(after_bad["job"]))
    assert log(after_bad) == ""  # SLURM cancelled it: it could have waited for ever


@pytest.mark.slow
def test_a_cancelled_job_ends_says_so_and_is_not_requeued(cluster: Lab, script: Path):
    answer = submit(
        cluster,
        "--name",
        "cancelled",
        "--nodes",
        "2",
        "--nproc-per-node",
        "2",
        "--python",
        sys.executable,
        "step.py",
        "0",
        "wait",
    )
    cluster.until(lambda: log(answer).count("tasks per node") == 4)
    assert rankup(cluster, "cancel", answer["run"]).code == 0
    done = rankup(cluster, "logs", "-f", answer["run"], timeout=100)
    assert done.code == 143, done.out + done.err
    assert cluster.wait_for(answer["job"]) == "CANCELLED"  # COMPLETING while SLURM cleans up
    status = json.loads(rankup(cluster, "status", "--json", answer["run"]).out)
    assert status[0]["state"] == "cancelled"
    # No process of it is left on either node.
    for node in cluster.nodes:
        assert "step.py" not in cluster.run(node, ["ps", "-eo", "args"]).out


def test_a_submit_from_inside_a_job_is_not_poisoned_by_its_environment(cluster: Lab, script: Path):
    inner = ["submit", *SITE, "--name", "inner", "--launcher", "torchrun", "step.py", "0"]
    command = " ".join([cluster.python, "-m", "rankup", *inner])
    outer = cluster.sbatch(
        f"#!/bin/bash\nexport RANK=3 WORLD_SIZE=8\nsrun -n1 {command}\n", "-N2", "--ntasks-per-node=2"
    )
    assert cluster.wait(outer, timeout=240) == "COMPLETED", outer.log.read_text()
    run = rankup(cluster, "logs", "-f", "inner", timeout=100)
    assert run.code == 0, run.out + run.err
    assert "tasks per node 1 rank 0" in run.out


def test_the_cores_of_a_rank_reach_its_step(cluster: Lab, script: Path):
    """The lab's SLURM cannot bind, so its own record of the step has to do: two tasks of two cores on each node."""
    (cluster.shared / "record.sh").write_text(
        '[ "$RANK" = 0 ] && scontrol --oneliner show step "$SLURM_JOB_ID.$SLURM_STEP_ID"\nexit 0\n'
    )
    answer = submit(
        cluster, "--name", "cores", "--nodes", "2", "--nproc-per-node", "2", "--cpus-per-task", "2",
        "--launcher", "srun", "bash", "record.sh",
    )  # fmt: skip
    done = rankup(cluster, "logs", "-f", answer["run"], timeout=100)
    assert done.code == 0, done.out
    assert re.search(r"StepId=\S+ .*CPUs=8 Tasks=4 ", done.out), done.out


@pytest.mark.slow
def test_a_crashed_node_requeues_the_job_which_then_finishes(own_cluster: Lab):
    cluster = own_cluster
    (cluster.shared / "crash.py").write_text(
        "import os, time\n"
        "first = len(open(os.environ['RANKUP_RUN_DIR'] + '/attempts').readlines()) == 1\n"
        "print('working', flush=True)\n"
        "time.sleep(300 if first else 0)\n"
    )
    answer = submit(cluster, "--name", "crash", "--nodes", "2", "--launcher", "srun", "crash.py")
    cluster.until(lambda: log(answer).count("working") == 2)
    cluster.crash("node2")
    try:
        cluster.until(lambda: "RUNNING" not in cluster.state_of(answer["job"]), 60)
    finally:
        cluster.revive("node2")
    done = rankup(cluster, "logs", "-f", answer["run"], timeout=200)
    assert done.code == 0, done.out + done.err
    assert done.out.count("==== rankup: attempt") == 2
