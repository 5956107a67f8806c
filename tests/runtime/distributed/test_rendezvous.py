"""Ranks that no agent brings together meet at a port of their own, whoever else has come to the same number."""

from __future__ import annotations

import contextlib
import os
import socket
import uuid
from datetime import timedelta

import pytest
import torch.distributed as dist

from ranks import run_ranks
from rankup.runtime.distributed.rendezvous import meet
from rankup.world import World
from rankup.world.address import rendezvous


@pytest.fixture
def job() -> str:
    """An id of its own for each test, whose first port nobody has: the kernel keeps a port for a while after its
    connections are closed, and other tests run beside this one."""
    while True:
        job = str(uuid.uuid4().int % 10**9)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", ports(job)[0]))
            return job


def step(job_id: str, rank: int, world_size: int) -> dict[str, str]:
    """What srun tells a rank of a step on one node: nothing of a port."""
    job = {"SLURM_JOB_ID": job_id, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "1", "SLURM_NODEID": "0"}
    ranks = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_STEP_NUM_TASKS": str(world_size)}
    return {**job, **ranks, "SLURM_STEP_TASKS_PER_NODE": str(world_size), "SLURM_STEP_NODELIST": "localhost"}


def ports(job: str) -> tuple[int, ...]:
    env = step(job, 0, 1)
    return rendezvous(World.detect(env), env).ports


def meets(job: str) -> float:
    import rankup

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        del os.environ[name]
    os.environ.update(step(job, rank, world_size))
    run = rankup.init(device="cpu", seed=0)
    return float(run.sum(run.world.rank + 1))


def test_jobs_that_come_to_the_same_port_do_not_meet_each_other(job: str):
    other_job = dist.TCPStore("127.0.0.1", ports(job)[0], is_master=True, wait_for_workers=False)
    other_job.set("rankup/start", "4712/0")
    assert run_ranks(meets, 3, job) == [6.0, 6.0, 6.0]


def test_a_port_of_a_program_that_never_answers_is_passed_over(job: str):
    with socket.create_server(("127.0.0.1", ports(job)[0])):
        assert run_ranks(meets, 2, job) == [3.0, 3.0]


def test_a_port_that_is_kept_for_another_job_is_not_taken(job: str):
    """The script of a job holds its port before its rank 0 listens."""
    with socket.socket() as holder:
        holder.bind(("", ports(job)[0]))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        assert run_ranks(meets, 2, job) == [3.0, 3.0]
        holder.listen()  # still ours alone


def test_who_finds_no_rank_0_says_where_it_looked(job: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "environ", env := step(job, 1, 2))
    with pytest.raises(
        RuntimeError, match=f"rank 0 did not answer within 1 s at localhost, port {ports(job)[0]} or"
    ):
        meet(World.detect(env), timedelta(seconds=1))


def test_rank_0_says_who_has_not_come(job: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "environ", env := step(job, 0, 3))
    with pytest.raises(RuntimeError, match=r"within 1 s nothing was heard of rank 1, 2$"):
        meet(World.detect(env), timedelta(seconds=1))
