"""The lab itself keeps its promises: other tests build on it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from lab import Lab

pytestmark = pytest.mark.cluster


def test_nodes_are_hosts_of_their_own_on_one_network(cluster: Lab):
    for node in cluster.nodes:
        done = cluster.run(node, ["bash", "-c", "hostname; getent hosts node1 node2 head; ls -A /dev/shm"])
        assert done.out.split() == [node, "10.78.0.11", "node1", "10.78.0.12", "node2", "10.78.0.1", "head"]


def test_tmp_is_private_and_the_shared_folder_is_not(cluster: Lab):
    cluster.run("node1", ["bash", "-c", "echo 1 > /tmp/only-here; echo 1 > seen"])
    assert cluster.run("node2", ["cat", "/tmp/only-here"]).code == 1
    assert cluster.run("node2", ["cat", "seen"]).out == "1\n"
    assert (cluster.shared / "seen").exists()
    assert not Path("/tmp/only-here").exists()


def test_a_command_sees_only_the_environment_it_is_given(cluster: Lab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RANK", "7")
    done = cluster.run("node1", ["env"], env={"GIVEN": "yes"})
    assert "GIVEN=yes" in done.out.splitlines()
    assert "RANK=7" not in done.out


def test_a_command_past_its_timeout_ends_with_its_children(cluster: Lab):
    done = cluster.run("node1", ["bash", "-c", "sleep 987 & sleep 987; wait"], timeout=1)
    assert done.code == 124
    sleepers = cluster.run("node1", ["ps", "-C", "sleep", "-o", "args="])
    assert sleepers.out == "sleep infinity\n"  # pid 1's own


def test_gpus_are_handed_out(cluster: Lab):
    done = cluster.srun(["-N1", "--gpus-per-node=2", "bash", "-c", "echo $CUDA_VISIBLE_DEVICES"])
    assert done.out == "0,1\n"


def test_a_test_run_that_is_killed_leaves_nothing_behind():
    """Not even SIGKILL: every host dies with the process that started it."""
    script = "from lab import Lab; lab = Lab(1); lab.up(); print(lab.shared, flush=True); input()"
    owner = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": f"{Path(__file__).parent}:{Path(__file__).parents[1]}"},
    )  # fmt: skip
    with owner:
        assert owner.stdout is not None
        state = Path(owner.stdout.readline().strip()).parent
        hosts = psutil.Process(owner.pid).children(recursive=True)
        assert {"slurmd", "slurmctld", "munged"} <= {host.name() for host in hosts}
        owner.send_signal(signal.SIGKILL)
    try:
        _, alive = psutil.wait_procs(hosts, timeout=240)
        assert alive == []
    finally:
        subprocess.run(["rm", "-rf", str(state)], check=True)
