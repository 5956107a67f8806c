"""What a job's shell holds, by scheduler; recorded environments."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rankup.errors import RankupError
from rankup.run.allocation import Allocation, detect_allocation
from rankup.world import address

SLURM = {
    "SLURM_JOB_ID": "12345",
    "SLURM_JOB_NODELIST": "rack[1-2]n[3-4]",
    "SLURM_JOB_CPUS_PER_NODE": "8(x3),4",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "0",
    "SLURM_NODEID": "0",
}
PBS = {"PBS_JOBID": "77[3].head", "PBS_NODEFILE": "/nodefile", "PBS_ENVIRONMENT": "PBS_BATCH"}


@pytest.mark.parametrize(
    ("env", "nodefile", "expected"),
    [
        ({}, "", None),
        ({"SLURM_JOB_ID": "1"}, "", None),
        (
            {**SLURM, "SLURMD_NODENAME": "rack1n3"},
            "",
            Allocation("slurm", "12345", ("rack1n3", "rack1n4", "rack2n3", "rack2n4"), inside=True, cpus=4),
        ),
        (
            {"SLURM_JOB_ID": "9", "SLURM_JOB_NODELIST": "n1"},
            "",
            Allocation("slurm", "9", ("n1",), inside=False),
        ),
        (
            PBS,
            "node2\nnode2\nnode1\nnode1\n",
            Allocation("pbs", "77[3].head", ("node2", "node1"), inside=True, lines=(0, 2)),
        ),
        (PBS, "node1\nnode1\n", Allocation("pbs", "77[3].head", ("node1",), inside=True, lines=(0,))),
    ],
)
def test_detection(env, nodefile, expected):
    assert detect_allocation(env, lambda path: nodefile) == expected


@pytest.mark.parametrize(
    ("hosts", "inside", "needed"), [(("a",), True, False), (("a",), False, True), (("a", "b"), True, True)]
)
def test_a_fan_out_is_needed_for_every_node_but_the_one_we_are_on(hosts, inside, needed):
    assert Allocation("slurm", "1", hosts, inside).needs_fan_out is needed


def test_a_part_of_an_allocation_is_its_first_nodes():
    whole = Allocation("pbs", "1", ("a", "b", "c"), inside=True, lines=(0, 2, 4))
    assert whole.first(3) is whole
    part = whole.first(2)
    assert (part.hosts, part.lines, part.of) == (("a", "b"), (0, 2), 3)
    assert not whole.first(1).needs_fan_out
    assert replace(whole, inside=False).first(1).needs_fan_out


def test_the_endpoint_is_the_heads_address_as_its_peers_see_it(monkeypatch):
    monkeypatch.setattr(address, "route_to", {"b": "10.0.0.1"}.__getitem__)
    assert Allocation("slurm", "1", ("a", "b"), inside=True).endpoint() == "10.0.0.1:0"
    assert Allocation("slurm", "1", ("a", "b"), inside=False).endpoint() == "a:0"


def test_one_of_several_tasks_of_srun_is_refused():
    step = {
        **SLURM,
        **{"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "1"},
        **{"SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_PROCID": "2", "SLURM_LOCALID": "2"},
        "SLURM_STEP_NODELIST": "rack1n3",
    }
    with pytest.raises(RankupError, match="rank 2 of 4 already") as caught:
        detect_allocation(step)
    assert caught.value.code == "one-of-many"
    assert "leave out srun" in caught.value.hint
