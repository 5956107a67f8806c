"""Groups of ranks: shared by the runs of a process, and refused if there are too few file descriptors for them."""

from __future__ import annotations

import os
import resource
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import rankup
from ranks import free_port, run_ranks
from rankup.runtime.distributed import groups
from rankup.world import World

SOFT, HARD = resource.getrlimit(resource.RLIMIT_NOFILE)


def open_now() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def many_runs() -> tuple[list[int], float, int]:
    opened = []
    for _ in range(5):
        run = rankup.init(strategy="fsdp")
        model, opt, _ = run.prepare(torch.nn.Linear(2, 2), lambda p: torch.optim.SGD(p, lr=0.1))
        model(torch.ones(1, 2)).sum().backward()
        opt.step()
        opened.append(open_now())
    before = run.sum(1.0)
    dist.destroy_process_group()
    os.environ["MASTER_PORT"] = os.environ["OTHER_PORT"]
    again = rankup.init()  # a new default group: the others are made anew
    return opened, before + again.sum(1.0), resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_runs_of_one_process_share_their_groups():
    for opened, total, limit in run_ranks(many_runs, 3, env={"OTHER_PORT": str(free_port())}):
        assert len(set(opened)) == 1
        assert total == 6.0
        assert limit == min(HARD, groups.ENOUGH)  # the soft limit has been raised


def few_descriptors() -> tuple[str, str, str]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
    try:
        rankup.init()
    except rankup.RankupError as error:
        return error.code, error.message, error.hint
    return "none", "", ""


def test_too_few_descriptors_for_the_ranks_are_an_error_that_says_how_many():
    for code, message, hint in run_ranks(few_descriptors, 2):
        assert code == "too-few-files"
        assert "rank 0 of 2 processes needs about" in message
        assert "limit here is 60" in message
        assert "ulimit -n" in hint


def test_a_limit_that_gloo_meets_on_the_way_is_named(monkeypatch):
    def full(*args: object) -> None:
        raise RuntimeError("[enforce fail at gloo/transport/tcp/device.cc] socket: Too many open files")

    monkeypatch.setattr(groups, "_init_default", full)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    world = World(0, 0, 2, 2, 0, 1, ("here",), "torchrun", None, 0)
    with pytest.raises(rankup.RankupError, match="need more open files") as caught:
        groups.start_groups(world, torch.device("cpu"), timedelta(minutes=1))
    assert caught.value.code == "too-few-files"


def test_ten_thousand_ranks_need_few_connections_each(monkeypatch):
    monkeypatch.delenv("TORCH_GLOO_LAZY_INIT", raising=False)
    assert groups.connections(8) == 7
    monkeypatch.setenv("TORCH_GLOO_LAZY_INIT", "1")
    monkeypatch.setattr(groups, "TORCH", (2, 8))
    assert [groups.connections(size) for size in (8, 128, 10_000)] == [7, 52, 64]
    monkeypatch.setattr(groups, "TORCH", (2, 7))  # which does not know the variable
    assert groups.connections(10_000) == 9_999


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1024, 20_000), 20_000),
        ((1024, 1 << 20), 65_536),
        ((100_000, 1 << 20), 100_000),
        ((1024, resource.RLIM_INFINITY), 65_536),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), resource.RLIM_INFINITY),
    ],
)
def test_the_soft_limit_is_raised_and_never_lowered(monkeypatch, before, after):
    limits = [before]
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda which, pair: limits.append(pair))
    groups.raise_limit()
    assert limits[-1] == (after, before[1])


def restarted_by_an_agent() -> float:
    rank = int(os.environ["RANK"])
    os.environ |= {"TORCHELASTIC_RESTART_COUNT": str(rank), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    # The agent's store of this start; it must outlive the ranks' work.
    own = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), None, rank == 0, wait_for_workers=False)
    total = rankup.init().sum(1.0)
    done = own.add("done", 1)
    while rank == 0 and done < 2:
        time.sleep(0.01)
        done = own.add("done", 0)
    return total


def test_ranks_meet_although_their_agents_count_restarts_differently():
    """torchrun on two nodes: the agent whose rank died counts a restart, and the one that follows it does not."""
    agents = {
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "TORCHELASTIC_RUN_ID": "one",
        "TORCHELASTIC_MAX_RESTARTS": "2",
    }
    env = {**agents, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    assert run_ranks(restarted_by_an_agent, 2, env=env) == [2.0, 2.0]
