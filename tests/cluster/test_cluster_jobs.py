"""What a real SLURM says of single tasks, of suspended jobs, with a frozen controller, and of ranks that fail."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from cluster_jobs import log, rankup, submit
from lab import HEAD, Lab

pytestmark = pytest.mark.cluster


def status(cluster: Lab, target: str, *words: str) -> dict[str, object]:
    answer = json.loads(rankup(cluster, "status", "--json", target, *words).out)[0]
    assert isinstance(answer, dict)
    return answer


@pytest.mark.slow
def test_one_task_of_an_array_is_shown_and_cancelled_alone(cluster: Lab):
    answer = submit(cluster, "--name", "tasks", "--array", "1-3", "--launcher", "single", "sleep", "300")
    number = answer["job"]
    cluster.until(lambda: all(log(answer, f"job-{i}.log") for i in (1, 2, 3)))
    done = rankup(cluster, "cancel", f"{number}_2")
    assert done.code == 0 and f"job {number}_2 cancelled" in done.out, done.err
    cluster.until(lambda: cluster.state_of(f"{number}_2") == "CANCELLED")
    assert [cluster.state_of(f"{number}_{i}") for i in (1, 3)] == ["RUNNING", "RUNNING"]
    assert status(cluster, f"{number}_2")["state"] == "cancelled"
    assert status(cluster, f"{number}_3")["state"] == "running"
    # A job that is suspended says so.
    assert cluster.run(HEAD, ["scontrol", "suspend", f"{number}_3"]).code == 0
    assert "suspended" in rankup(cluster, "status", f"{number}_3").out
    assert status(cluster, f"{number}_3")["suspended"] is True
    assert cluster.run(HEAD, ["scontrol", "resume", f"{number}_3"]).code == 0
    assert rankup(cluster, "cancel", number).code == 0
    cluster.wait_for(number)


@pytest.mark.slow
def test_a_frozen_controller_hides_nothing_that_the_run_directory_knows(own_cluster: Lab):
    cluster = own_cluster
    answer = submit(cluster, "--name", "frozen", "--launcher", "single", "sleep", "300")
    cluster.until(lambda: log(answer))
    cluster.run(HEAD, ["pkill", "-STOP", "slurmctld"])  # in the pretend host alone
    began = time.monotonic()
    done = rankup(cluster, "status", "frozen")
    took = time.monotonic() - began
    cluster.run(HEAD, ["pkill", "-CONT", "slurmctld"])
    assert done.code == 1 and "squeue gave no answer" in done.err
    assert "unknown" in done.out and "attempt 1 started" in done.out and "node1" in done.out
    assert took < 15  # squeue's own patience is 20 s


@pytest.mark.parametrize("launcher", ["srun", "torchrun"])
def test_the_rank_that_failed_first_is_named_and_its_code_is_the_jobs(cluster: Lab, launcher: str):
    text = 'if [ "$RANK" = 1 ]; then sleep 2; exit 7; fi; trap "exit 9" TERM; while :; do sleep 0.1; done'
    answer = submit(cluster, "--name", f"fails-{launcher}", "--nodes", "2", "--nproc-per-node", "1",
                    "--launcher", launcher, "bash", "-c", text)  # fmt: skip
    done = rankup(cluster, "logs", "-f", answer["run"], timeout=120)
    assert done.code == 7, done.out + done.err
    said = status(cluster, answer["run"])
    assert (said["state"], said["code"]) == ("failed", 7), done.out
    failure = said["failure"]
    assert isinstance(failure, dict)
    assert (failure["rank"], failure["host"], failure["code"]) == (1, "node2", 7)
    assert "rank 1 on node2 failed first" in str(said["reason"])
    assert "rank 1 on node2 failed first" in done.out
    assert (Path(answer["run"]) / "exit_code").read_text() == "7\n"
