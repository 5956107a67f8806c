"""``rankup world`` on a real SLURM of two nodes: right in every process, whoever started it."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from lab import Lab

from rankup.core.hostlist import expand

pytestmark = pytest.mark.cluster


def world_of(cluster: Lab) -> str:
    return f"{cluster.python} -m rankup world --json"


def worlds(output: str) -> list[dict[str, Any]]:
    """What the ranks printed, in the order of their ranks."""
    printed = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return sorted(printed, key=lambda facts: facts["rank"])


def check_two_by_two(cluster: Lab, facts: list[dict[str, Any]]) -> None:
    """Four processes, two on each node, that agree on where they meet."""
    assert [one["rank"] for one in facts] == [0, 1, 2, 3]
    assert {(one["world_size"], one["local_world_size"], one["num_nodes"]) for one in facts} == {(4, 2, 2)}
    assert [one["local_rank"] for one in facts] == [0, 1, 0, 1]
    assert [one["node_rank"] for one in facts] == [0, 0, 1, 1]
    assert [one["problem"] for one in facts] == [None] * 4
    assert {one["interface"] for one in facts} == {"eth0"}
    assert [one["address"] for one in facts] == [cluster.address(one["hostname"]) for one in facts]
    assert [one["hostname"] for one in facts[::2]] == [one["hostname"] for one in facts[1::2]]
    assert {one["hostname"] for one in facts} == {"node1", "node2"}
    assert len({one["rendezvous"] for one in facts}) == 1


def test_srun_two_by_two(cluster: Lab):
    done = cluster.srun(["-N2", "--ntasks-per-node=2", *world_of(cluster).split()])
    facts = worlds(done.out)
    check_two_by_two(cluster, facts)
    assert {one["launcher"] for one in facts} == {"srun"}
    assert {tuple(one["hosts"]) for one in facts} == {("node1", "node2")}
    assert len({one["job_id"] for one in facts}) == 1 and facts[0]["job_id"].isdigit()
    assert facts[0]["rendezvous"].startswith("node1:")


def test_srun_with_uneven_nodes_and_without_one_of_them(cluster: Lab):
    world = world_of(cluster)
    job = cluster.sbatch(
        f"#!/bin/bash\nsrun {world}\nsrun -N1 -n1 -w node2 {world}\n",
        "-N2",
        "-n3",
        "--exclusive",
    )
    assert cluster.wait(job) == "COMPLETED", job.log.read_text()
    lines = worlds(job.log.read_text())
    step = [one for one in lines if one["world_size"] == 3]
    assert [(one["rank"], one["local_rank"], one["local_world_size"]) for one in step] == [
        (0, 0, 2),
        (1, 1, 2),
        (2, 0, 1),
    ]
    (small,) = [one for one in lines if one["world_size"] == 1]
    assert (small["hosts"], small["num_nodes"], small["hostname"]) == (["node2"], 1, "node2")
    assert {one["job_id"] for one in lines} == {job.id}


def test_mpirun_in_an_allocation_shows_open_mpis_ranks_and_not_slurms(cluster: Lab):
    job = cluster.sbatch(
        f"#!/bin/bash\nmpirun -np 4 --bind-to none {world_of(cluster)}\n", "-N2", "--ntasks-per-node=2"
    )
    assert cluster.wait(job) == "COMPLETED", job.log.read_text()
    facts = worlds(job.log.read_text())
    check_two_by_two(cluster, facts)
    assert {one["launcher"] for one in facts} == {"openmpi"}
    assert {tuple(one["hosts"]) for one in facts} == {("node1", "node2")}
    assert {one["job_id"] for one in facts} == {job.id}
    assert {one["sources"]["rank"] for one in facts} == {"OMPI_COMM_WORLD_RANK"}


def test_mpirun_round_the_nodes_from_outside_of_them(cluster: Lab):
    """salloc runs mpirun on the head, which is none of the nodes."""
    command = ["mpirun", "-np", "4", "--map-by", "node", "--bind-to", "none", *world_of(cluster).split()]
    done = cluster.run("head", ["salloc", "-N2", "--ntasks-per-node=2", *command])
    facts = worlds(done.out)
    assert [(one["rank"], one["node_rank"], one["local_rank"]) for one in facts] == [
        (0, 0, 0), (1, 1, 0), (2, 0, 1), (3, 1, 1),
    ]  # fmt: skip
    assert [one["hostname"] for one in facts] == ["node1", "node2", "node1", "node2"]
    assert {one["launcher"] for one in facts} == {"openmpi"}


def test_torchrun_once_per_node_shows_the_workers_and_not_the_agents(cluster: Lab):
    agent = (
        f"exec {cluster.python} -m torch.distributed.run --nnodes=2 --node_rank=$SLURM_NODEID"
        " --nproc_per_node=2 --master_addr=$MASTER_ADDR --master_port=18000 -m rankup world --json"
    )
    done = cluster.srun(
        ["-N2", "--ntasks-per-node=1", "bash", "-c", agent],
        {"MASTER_ADDR": cluster.address("node1")},
        timeout=120,
    )
    facts = worlds(done.out)
    assert len(facts) == 4, done.err
    check_two_by_two(cluster, facts)
    assert {one["launcher"] for one in facts} == {"torchrun"}
    assert {tuple(one["hosts"]) for one in facts} == {()}
    assert {one["rendezvous"] for one in facts} == {"10.78.0.11:18000"}
    assert all(one["job_id"].isdigit() for one in facts)


def test_a_plain_batch_shell_is_a_single_process(cluster: Lab):
    world = f"{sys.executable} -m rankup world --json"  # not warm: a child of SLURM's own
    job = cluster.sbatch(f"#!/bin/bash\n{world}\n", "-N2", "--ntasks-per-node=2")
    assert cluster.wait(job) == "COMPLETED", job.log.read_text()
    (facts,) = worlds(job.log.read_text())
    assert (facts["rank"], facts["world_size"], facts["launcher"]) == (0, 1, "none")
    assert (facts["job_id"], facts["num_nodes"], facts["hosts"]) == (job.id, 1, [])


def test_the_shell_of_srun_pty_is_a_single_process_and_a_step_from_it_is_not(cluster: Lab):
    world = world_of(cluster)
    typed = f"srun -N2 -n4 --pty bash -c '{world}; srun --overlap -n2 {world}'"
    done = cluster.run("head", ["script", "-qec", typed, "/dev/null"])
    lines = [json.loads(line[line.index("{") :]) for line in done.out.splitlines() if "{" in line]
    assert sorted((one["launcher"], one["rank"], one["world_size"]) for one in lines) == [
        ("none", 0, 1), ("srun", 0, 2), ("srun", 1, 2),
    ]  # fmt: skip


def test_a_task_of_an_array_knows_its_number(cluster: Lab):
    job = cluster.sbatch(f"#!/bin/bash\nsrun {world_of(cluster)}\n", "-N1", "--array=5")
    assert cluster.wait(job) == "COMPLETED"
    (facts,) = worlds(job.log.read_text())
    assert (facts["job_id"], facts["launcher"]) == (f"{job.id}_5", "srun")


def test_slurm_expands_host_lists_as_we_do(cluster: Lab):
    for text in ("rack[1-2]n[3-4]", "a[1],b[3-4,007-010]", "b[08-11]", "n[2,1,2]", "n[9-10]x[5],q"):
        done = cluster.run("head", ["scontrol", "show", "hostnames", text])
        assert expand(text) == done.out.split()
