"""Who am I? A new site's environment is one line in CASES; what contradicts itself is one line in REFUSED."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankup.errors import RankupError
from rankup.world import World

SLURM_JOB = {"SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_NAME": "train"}
# As SLURM 22.05 sets them in a batch shell: tasks that nobody started.
SLURM_BATCH = {
    **SLURM_JOB, "SLURM_NTASKS": "4", "SLURM_NPROCS": "4", "SLURM_PROCID": "0", "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0", "SLURM_TASKS_PER_NODE": "2(x2)", "SLURMD_NODENAME": "n1",
}  # fmt: skip
# Rank 3 of 4 in a step.
SLURM_STEP = {
    **SLURM_BATCH, "SLURM_STEP_ID": "0", "SLURM_STEPID": "0", "SLURM_PROCID": "3", "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
}  # fmt: skip
TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none", "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "n1", "MASTER_PORT": "29500",
    "TORCHELASTIC_RESTART_COUNT": "0",
}  # fmt: skip


def ompi(rank: int, size: int, local_rank: int, local_size: int, **more: str) -> dict[str, str]:
    numbers = {"RANK": rank, "SIZE": size, "LOCAL_RANK": local_rank, "LOCAL_SIZE": local_size}
    # The process's rank on its node, whatever the name says.
    numbers["NODE_RANK"] = local_rank
    return {f"OMPI_COMM_WORLD_{name}": str(value) for name, value in numbers.items()} | more


def mv2(rank: int, size: int, local_rank: int, local_size: int, **more: str) -> dict[str, str]:
    numbers = {"RANK": rank, "SIZE": size, "LOCAL_RANK": local_rank, "LOCAL_SIZE": local_size}
    return {f"MV2_COMM_WORLD_{name}": str(value) for name, value in numbers.items()} | more


def hydra(rank: int, size: int, local_rank: int, local_size: int, **more: str) -> dict[str, str]:
    return {
        "PMI_RANK": str(rank), "PMI_SIZE": str(size), "MPI_LOCALRANKID": str(local_rank),
        "MPI_LOCALNRANKS": str(local_size), **more,
    }  # fmt: skip


def pals(rank: int, size: int, local_rank: int, local_size: int, node: int, **more: str) -> dict[str, str]:
    return {
        "PALS_RANKID": str(rank), "PMI_RANK": str(rank), "PMI_SIZE": str(size), "PALS_NODEID": str(node),
        "PALS_LOCAL_RANKID": str(local_rank), "PALS_LOCAL_SIZE": str(local_size), "PALS_APID": "abc", **more,
    }  # fmt: skip


def plain(rank: int, size: int, **more: str) -> dict[str, str]:
    head = {"MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
    return {"RANK": str(rank), "WORLD_SIZE": str(size), **head, **more}


# name: (environment, launcher, (rank, size, local rank, local size, node rank, nodes), hosts, job id)
CASES = {
    "nothing set": ({}, "none", (0, 1, 0, 1, 0, 1), "", None),
    "empty variables are unset": (
        {"RANK": "", "WORLD_SIZE": "", "OMPI_COMM_WORLD_RANK": ""}, "none", (0, 1, 0, 1, 0, 1), "", None),
    "torchrun": (TORCHRUN, "torchrun", (5, 8, 1, 4, 1, 2), "", None),
    "torchrun in a SLURM step of agents": (
        {**SLURM_STEP, **TORCHRUN}, "torchrun", (5, 8, 1, 4, 1, 2), "", "77"),
    "torchrun in a PBS job": (
        {**TORCHRUN, "PBS_JOBID": "5.head"}, "torchrun", (5, 8, 1, 4, 1, 2), "", "5.head"),
    "torchrun, another number of workers on each node": (
        {**TORCHRUN, "LOCAL_WORLD_SIZE": "3"}, "torchrun", (5, 8, 1, 3, 1, 2), "", None),
    "Open MPI on one node": (ompi(1, 2, 1, 2), "openmpi", (1, 2, 1, 2, 0, 1), "", None),
    "Open MPI, node after node": (ompi(6, 8, 2, 4), "openmpi", (6, 8, 2, 4, 1, 2), "", None),
    "Open MPI, round the nodes": (ompi(3, 4, 1, 2), "openmpi", (3, 4, 1, 2, 1, 2), "", None),
    "Open MPI, round the nodes, rank 1": (ompi(1, 4, 0, 2), "openmpi", (1, 4, 0, 2, 1, 2), "", None),
    "Open MPI 4 on the head of a batch job": (
        {**SLURM_BATCH, **ompi(1, 4, 1, 2, PMIX_HOSTNAME="n1", OMPI_MCA_orte_num_nodes="2")},
        "openmpi", (1, 4, 1, 2, 0, 2), "n1 n2", "77"),
    "Open MPI 4 under the daemon's step, which shows SLURM ranks of daemons": (
        {**SLURM_STEP, "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "n2",
         "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_PROCID": "0", "SLURM_NODEID": "0",
         **ompi(2, 4, 0, 2, PMIX_HOSTNAME="n2", OMPI_MCA_orte_num_nodes="2")},
        "openmpi", (2, 4, 0, 2, 1, 2), "n1 n2", "77"),
    "Open MPI, uneven nodes that the scheduler lists": (
        {**SLURM_JOB, "SLURMD_NODENAME": "n2", **ompi(2, 3, 0, 1)}, "openmpi", (2, 3, 0, 1, 1, 2),
        "n1 n2", "77"),
    "Open MPI on one of the job's two nodes": (
        {**SLURM_JOB, "SLURMD_NODENAME": "n2", **ompi(1, 2, 1, 2)}, "openmpi", (1, 2, 1, 2, 0, 1), "", "77"),
    "Open MPI names its host in full": (
        {**SLURM_JOB, **ompi(1, 2, 0, 1, PMIX_HOSTNAME="n2.site.org")}, "openmpi", (1, 2, 0, 1, 1, 2),
        "n1 n2", "77"),
    "PALS, which sets PMI_RANK too": (pals(5, 8, 1, 4, 1), "pals", (5, 8, 1, 4, 1, 2), "", None),
    "PALS with its own size": (
        {**pals(5, 8, 1, 4, 1), "PMI_SIZE": "", "PALS_SIZE": "8"}, "pals", (5, 8, 1, 4, 1, 2), "", None),
    "MVAPICH": (mv2(2, 4, 0, 2), "mvapich", (2, 4, 0, 2, 1, 2), "", None),
    "MVAPICH by Hydra": ({**mv2(2, 4, 0, 2), **hydra(2, 4, 0, 2)}, "mvapich", (2, 4, 0, 2, 1, 2), "", None),
    "Hydra in a SLURM step": (
        {**SLURM_STEP, **hydra(1, 4, 1, 2)}, "hydra", (1, 4, 1, 2, 0, 2), "n1 n2", "77"),
    "srun": (SLURM_STEP, "srun", (3, 4, 1, 2, 1, 2), "n1 n2", "77"),
    "srun --mpi=pmi2": (
        {**SLURM_STEP, "PMI_RANK": "3", "PMI_SIZE": "4"}, "srun", (3, 4, 1, 2, 1, 2), "n1 n2", "77"),
    "srun, uneven nodes": (
        {**SLURM_STEP, "SLURM_PROCID": "2", "SLURM_LOCALID": "0", "SLURM_STEP_NUM_TASKS": "3",
         "SLURM_STEP_TASKS_PER_NODE": "2,1"}, "srun", (2, 3, 0, 1, 1, 2), "n1 n2", "77"),
    "srun, a step smaller than its job": (
        {**SLURM_STEP, "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0",
         "SLURM_STEP_NUM_TASKS": "1",
         "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "n2", "SLURM_STEP_TASKS_PER_NODE": "1"},
        "srun", (0, 1, 0, 1, 0, 1), "n2", "77"),
    "srun in an array": (
        {**SLURM_STEP, "SLURM_ARRAY_JOB_ID": "70", "SLURM_ARRAY_TASK_ID": "4"},
        "srun", (3, 4, 1, 2, 1, 2), "n1 n2", "70_4"),
    "srun from the shell of salloc, whose job is called interactive": (
        {**SLURM_STEP, "SLURM_JOB_NAME": "interactive", "SLURM_PTY_PORT": "40000"},
        "srun", (3, 4, 1, 2, 1, 2), "n1 n2", "77"),
    "srun from the shell of srun --pty": (
        {**SLURM_STEP, "SLURM_JOB_NAME": "bash", "SLURM_PTY_PORT": "40000", "SLURM_STEP_ID": "2"},
        "srun", (3, 4, 1, 2, 1, 2), "n1 n2", "77"),
    "the shell of srun -n4 --pty": (
        {**SLURM_STEP, "SLURM_JOB_NAME": "bash", "SLURM_PTY_PORT": "40000"}, "none", (0, 1, 0, 1, 0, 1),
        "", "77"),
    "a batch shell": (SLURM_BATCH, "none", (0, 1, 0, 1, 0, 1), "", "77"),
    "a batch shell whose step has a number": (
        {**SLURM_STEP, "SLURM_STEP_ID": "4294967291"}, "none", (0, 1, 0, 1, 0, 1), "", "77"),
    "a batch shell whose step has a name": (
        {**SLURM_STEP, "SLURM_STEP_ID": "batch"}, "none", (0, 1, 0, 1, 0, 1), "", "77"),
    "the interactive step of salloc": (
        {**SLURM_STEP, "SLURM_STEP_ID": "4294967290"}, "none", (0, 1, 0, 1, 0, 1), "", "77"),
    "an ssh login adopted by the job": (
        {**SLURM_STEP, "SLURM_STEP_ID": "4294967292"}, "none", (0, 1, 0, 1, 0, 1), "", "77"),
    "an agent of pbsdsh": (
        {"PBS_JOBID": "5.head", "PBS_NODENUM": "1", "PBS_TASKNUM": "3"}, "pbsdsh", (0, 1, 0, 1, 1, 2),
        "", "5.head"),
    "an agent of Torque's pbsdsh": (
        {"PBS_JOBID": "5.head", "PBS_NODENUM": "1", "PBS_NUM_NODES": "4"}, "pbsdsh", (0, 1, 0, 1, 1, 4),
        "", "5.head"),
    "torchrun under an agent of pbsdsh": (
        {**TORCHRUN, "PBS_JOBID": "5.head", "PBS_NODENUM": "1"}, "torchrun", (5, 8, 1, 4, 1, 2),
        "", "5.head"),
    "a PBS script": (
        {"PBS_JOBID": "5.head", "PBS_NODENUM": "0", "PBS_NODEFILE": "/nowhere"},
        "none", (0, 1, 0, 1, 0, 1), "", "5.head"),
    "a PBS array": ({"PBS_JOBID": "53[7].head"}, "none", (0, 1, 0, 1, 0, 1), "", "53[7].head"),
    "by hand, one node": (plain(1, 2, MASTER_ADDR="localhost"), "env", (1, 2, 1, 2, 0, 1), "", None),
    "by hand, one process": (plain(0, 1), "env", (0, 1, 0, 1, 0, 1), "", None),
    "by hand, two nodes": (
        plain(3, 4, LOCAL_RANK="1", LOCAL_WORLD_SIZE="2"), "env", (3, 4, 1, 2, 1, 2), "", None),
    "by hand, two uneven nodes": (
        plain(3, 4, LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", NODE_RANK="1", NNODES="2"),
        "env", (3, 4, 0, 1, 1, 2), "", None),
    "a script that exports what its launcher says anyway": (
        {**SLURM_STEP, **plain(3, 4, LOCAL_RANK="1")}, "srun", (3, 4, 1, 2, 1, 2), "n1 n2", "77"),
    "a single process and its RANK": ({"RANK": "0", "WORLD_SIZE": "1"}, "none", (0, 1, 0, 1, 0, 1), "", None),
}  # fmt: skip


@pytest.mark.parametrize(("env", "launcher", "numbers", "hosts", "job_id"), CASES.values(), ids=CASES.keys())
def test_who_i_am(env, launcher, numbers, hosts, job_id):
    world = World.detect(env)
    assert world.launcher == launcher
    ranks = (world.rank, world.world_size, world.local_rank, world.local_world_size)
    assert (*ranks, world.node_rank, world.num_nodes) == numbers
    assert world.hosts == tuple(hosts.split())
    assert world.job_id == job_id


# name: (environment, texts that the message has to hold)
REFUSED = {
    "rank = size": (ompi(4, 4, 0, 2), ["OMPI_COMM_WORLD_RANK is 4", "OMPI_COMM_WORLD_SIZE is 4"]),
    "local rank = local size": (
        {**TORCHRUN, "LOCAL_RANK": "4"}, ["LOCAL_RANK is 4", "LOCAL_WORLD_SIZE is 4"]),
    "no process on this node": (ompi(0, 4, 0, 0), ["_LOCAL_RANK is 0", "_LOCAL_SIZE is 0"]),
    "a node larger than the world": (
        {**TORCHRUN, "LOCAL_WORLD_SIZE": "9"}, ["LOCAL_WORLD_SIZE is 9", "WORLD_SIZE is 8"]),
    "node rank = nodes": ({**TORCHRUN, "GROUP_RANK": "2"}, ["GROUP_RANK is 2", "GROUP_WORLD_SIZE is 2"]),
    "srun's rank outside its step": (
        {**SLURM_STEP, "SLURM_PROCID": "4"}, ["SLURM_PROCID is 4", "SLURM_STEP_NUM_TASKS is 4"]),
    "counts of another number of nodes": (
        {**SLURM_STEP, "SLURM_STEP_TASKS_PER_NODE": "4"},
        ["SLURM_STEP_TASKS_PER_NODE is '4'", "_NUM_NODES is '2'"]),
    "hosts of another number of nodes": (
        {**SLURM_STEP, "SLURM_STEP_NODELIST": "n[1-3]"},
        ["_NODELIST is 'n[1-3]'", "SLURM_STEP_NUM_NODES is '2'"]),
    "a malformed node list": ({**SLURM_STEP, "SLURM_STEP_NODELIST": "n[1-"}, ["host list is malformed"]),
    "not a number": ({**TORCHRUN, "RANK": "one"}, ["RANK is 'one'", "must be a whole number"]),
    "negative": (mv2(-1, 4, 0, 2), ["MV2_COMM_WORLD_RANK is '-1'"]),
    "a step that is not a number": ({**SLURM_STEP, "SLURM_STEP_ID": "x"}, ["SLURM_STEP_ID is 'x'"]),
    "a size is missing": ({"OMPI_COMM_WORLD_RANK": "0"}, ["OMPI_COMM_WORLD_SIZE is not set"]),
    "PALS without any size": (
        {**pals(0, 2, 0, 2, 0), "PMI_SIZE": ""}, ["PMI_SIZE or PALS_SIZE is not set"]),
    "uneven nodes and no list of hosts": (ompi(0, 3, 0, 2), ["does not tell on which node"]),
    "a stale RANK beside Open MPI": (
        {**ompi(1, 2, 1, 2), "RANK": "0"}, ["RANK is 0", "OMPI_COMM_WORLD_RANK is 1"]),
    "a stale WORLD_SIZE beside srun": (
        {**SLURM_STEP, "WORLD_SIZE": "8"}, ["WORLD_SIZE is 8", "SLURM_STEP_NUM_TASKS is 4"]),
    "LOCAL_RANK exported in the batch script": (
        {**SLURM_STEP, "LOCAL_RANK": "0"}, ["LOCAL_RANK is 0", "SLURM_LOCALID is 1"]),
    "a RANK beside srun that is not a number": ({**SLURM_STEP, "RANK": "x"}, ["RANK is 'x'"]),
    "RANK and WORLD_SIZE without a place to meet": (
        {"RANK": "1", "WORLD_SIZE": "2"}, ["RANK is 1", "MASTER_ADDR and MASTER_PORT are not set"]),
    "WORLD_SIZE alone": (
        {"WORLD_SIZE": "8"}, ["WORLD_SIZE is 8", "RANK and MASTER_ADDR and MASTER_PORT are not set"]),
    "several nodes by hand without local ranks": (plain(1, 4), ["LOCAL_RANK is not set"]),
    "several nodes by hand without local sizes": (
        plain(1, 4, LOCAL_RANK="0"), ["LOCAL_WORLD_SIZE is not set"]),
    "pbsdsh beyond Torque's nodes": (
        {"PBS_JOBID": "5", "PBS_NODENUM": "2", "PBS_NUM_NODES": "2"},
        ["PBS_NODENUM is 2", "PBS_NUM_NODES is 2"]),
}  # fmt: skip


@pytest.mark.parametrize(("env", "texts"), REFUSED.values(), ids=REFUSED.keys())
def test_a_contradiction_names_both_variables_with_their_values(env, texts):
    with pytest.raises(RankupError) as caught:
        World.detect(env)
    assert [text for text in texts if text not in caught.value.message] == []
    assert caught.value.hint


def test_the_hint_for_a_stale_variable_is_the_command_that_mends_it():
    with pytest.raises(RankupError) as caught:
        World.detect({**SLURM_STEP, "RANK": "0"})
    assert "unset RANK" in caught.value.hint


def test_restarts_are_those_of_the_job_and_of_torchruns_workers():
    assert World.detect({**SLURM_STEP, "SLURM_RESTART_COUNT": "2"}).restart == 2
    assert World.detect({**SLURM_BATCH, "SLURM_RESTART_COUNT": "2"}).restart == 2
    both = World.detect(
        {**SLURM_STEP, **TORCHRUN, "SLURM_RESTART_COUNT": "2", "TORCHELASTIC_RESTART_COUNT": "1"}
    )
    assert both.restart == 3
    assert both.sources["restart"] == "SLURM_RESTART_COUNT + TORCHELASTIC_RESTART_COUNT"


def test_sources_name_the_variables_that_were_believed():
    assert World.detect({**SLURM_STEP, **plain(3, 4)}).sources == {
        "rank": "SLURM_PROCID",
        "world_size": "SLURM_STEP_NUM_TASKS",
        "local_rank": "SLURM_LOCALID",
        "local_world_size": "SLURM_STEP_TASKS_PER_NODE, SLURM_NODEID",
        "node_rank": "SLURM_NODEID",
        "num_nodes": "SLURM_STEP_NUM_NODES",
        "hosts": "SLURM_STEP_NODELIST",
        "job_id": "SLURM_JOB_ID",
    }
    derived = World.detect(ompi(6, 8, 2, 4)).sources
    assert derived["node_rank"] == "OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_LOCAL_SIZE"
    assert "hosts" not in World.detect({**SLURM_STEP, **TORCHRUN}).sources


def test_a_pbs_nodefile_gives_each_host_once_in_first_seen_order(tmp_path: Path):
    nodefile = tmp_path / "nodes"
    nodefile.write_text("n2\nn2\nn1\nn1\n")
    pbs = {"PBS_JOBID": "5.head", "PBS_NODEFILE": str(nodefile)}
    world = World.detect({**pbs, **pals(2, 4, 0, 2, 1)})
    assert (world.hosts, world.node_rank, world.job_id) == (("n2", "n1"), 1, "5.head")
    assert World.detect({**pbs, **ompi(2, 4, 0, 2, PMIX_HOSTNAME="n2")}).node_rank == 0


@pytest.mark.parametrize("order", ["node after node", "round the nodes"])
def test_the_scheduler_names_the_node_where_arithmetic_could_err(order):
    """Rank 2 of 4 × 2: local rank 0 on node 1 when filling, local rank 0 on node 2 when going round."""
    node = 1 if order == "node after node" else 2
    env = {
        "SLURM_JOB_ID": "1",
        "SLURM_JOB_NODELIST": "n[0-3]",
        "SLURMD_NODENAME": f"n{node}",
        **ompi(2, 8, 0, 2),
    }
    assert World.detect(env).node_rank == node


def test_detect_reads_the_process_environment_by_default(monkeypatch: pytest.MonkeyPatch):
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    assert World.detect().rank == 5
