"""Exchanges along a tree: each operation on trees of several heights, the same on all ranks; who hears of a failure.

The claims are counted in real processes with the fan-out forced to 2: connections, messages, requests to the store.
"""

from __future__ import annotations

import contextlib
import operator
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

import rankup
from ranks import run_ranks
from rankup.messages import tree
from rankup.messages.tree import Tree
from rankup.runtime.distributed import groups, waiting
from rankup.strategies.base import TORCH

TIMEOUT = timedelta(seconds=60)


def each_operation() -> dict[str, Any]:
    tree.FAN_OUT = 2
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    all_ranks = Tree(range(size), rank, "test", TIMEOUT)
    odd = [other for other in range(size) if other % 2 == rank % 2]
    half = Tree(odd, rank, "half", TIMEOUT)
    begun = all_ranks.begin(rank + 1, operator.mul)
    return {
        "begun": begun.wait(),
        "floats": all_ranks.exchange(0.1 * 3**rank, operator.add).hex(),
        "most": all_ranks.exchange(-rank, max),
        "long": all_ranks.exchange("x" * 1000 * rank, operator.add),
        "gathered": all_ranks.gather([rank] * 300),
        "collected": all_ranks.collect({"of": rank} if rank % 2 else None),
        "from the last": all_ranks.broadcast("of " + str(rank), size - 1),
        "from the first": all_ranks.broadcast(rank),
        "nothing": all_ranks.barrier(),
        "half": (half.leads, half.exchange(rank, operator.add), half.gather(rank) == odd, half.collect(rank)),
    }


@pytest.mark.parametrize("world_size", [3, 4, 5, 7])
def test_each_operation_has_the_same_result_on_all_ranks(world_size: int):
    ranks = range(world_size)
    found = run_ranks(each_operation, world_size)
    for rank, each in enumerate(found):
        collected, (leads, total, gathered, of_half) = each.pop("collected"), each.pop("half")
        assert collected == ([] if rank else [(r, {"of": r}) for r in ranks if r % 2])
        mates = [other for other in ranks if other % 2 == rank % 2]
        assert (leads, total, gathered) == (rank == mates[0], sum(mates), True)
        assert of_half == ([(r, r) for r in mates] if leads else [])
    assert all(each == found[0] for each in found)  # the sum of floats bit for bit
    factorial = 1
    for rank in ranks:
        factorial *= rank + 1
    sums = {float.fromhex(found[0].pop("floats"))}
    assert sums.pop() == pytest.approx(sum(0.1 * 3**rank for rank in ranks))
    assert found[0] == {
        "begun": factorial,
        "most": 0,
        "long": "x" * 1000 * sum(ranks),
        "gathered": [[rank] * 300 for rank in ranks],
        "from the last": f"of {world_size - 1}",
        "from the first": 0,
        "nothing": None,
    }


def test_a_process_alone_exchanges_with_itself():
    alone = Tree([3], 3, "test", TIMEOUT)
    assert alone.leads and alone.exchange(2, operator.add) == 2 and alone.gather("a") == ["a"]
    assert alone.collect(None) == [] and alone.collect(1) == [(3, 1)] and alone.broadcast("b") == "b"


def for_gpus_alone() -> tuple[int, list[int]]:
    """The script's default group has no gloo, as far as the trees know."""
    dist.init_process_group("gloo")
    dist.get_backend_config = lambda: "cuda:nccl"
    trees = [Tree(range(2), dist.get_rank(), purpose, TIMEOUT) for purpose in ("one", "other")]
    return dist.get_pg_count(), [each.exchange(1, operator.add) for each in trees]


def test_beside_a_group_without_gloo_all_trees_share_one_with_it():
    assert run_ranks(for_gpus_alone, 2) == [(2, [2, 2])] * 2


def one_leaves(leaver: int) -> tuple[str, int]:
    """What a rank gets whose peers are in an exchange, and how many have heard of it before any of them ends."""
    tree.FAN_OUT = 2
    run = rankup.init(timeout=timedelta(seconds=100))
    if run.world.rank == leaver:
        return "", 0
    code, heard = "none", 0
    try:
        run.sum(1.0)
    except rankup.RankupError as error:
        code = error.code
    store, deadline = distributed_c10d._get_default_store(), time.monotonic() + 50
    with contextlib.suppress(RuntimeError):  # rank 0 has ended, and with it the store
        heard = store.add("heard", 1)
        while (run.world.rank or heard < run.world.world_size - 1) and time.monotonic() < deadline:
            time.sleep(0.05)
            heard = store.add("heard", 0)
    return code, heard


@pytest.mark.parametrize("leaver", [6, 1])  # a leaf of the tree; a rank with children
def test_all_ranks_of_a_deep_tree_hear_at_once_of_one_that_has_left(leaver: int):
    found = run_ranks(one_leaves, 7, leaver)
    assert {code for rank, (code, _) in enumerate(found) if rank != leaver} == {"rank-left"}
    assert found[0][1] == 6


def elsewhere() -> tuple[str, str]:
    tree.FAN_OUT = 2
    run = rankup.init()
    try:
        run.mean(1.0, 1) if run.world.rank == 5 else run.sum(1.0)
    except rankup.RankupError as error:
        return error.code, error.message
    return "none", ""


def test_a_rank_in_another_collective_is_named_on_all_ranks_of_a_deep_tree():
    found = run_ranks(elsewhere, 7)
    assert {code for code, _ in found} == {"unequal-collectives"}
    for _, message in found:
        assert "rank 5 in run.mean at " in message and "; ranks 0, 1, 2, 3, 4, 6 in run.sum at " in message, (
            message
        )


def late_on_a_deep_tree() -> tuple[str, str]:
    tree.FAN_OUT, waiting.POLL_S = 2, 0.1
    run = rankup.init(timeout=timedelta(seconds=6))
    if run.world.rank == 4:
        time.sleep(9)
    try:
        run.sum(1.0)
    except rankup.RankupError as error:
        return error.code, error.message
    return "none", ""


@pytest.mark.slow
def test_a_rank_that_is_late_on_a_deep_tree_is_a_timeout_on_the_others_which_say_where_it_is():
    found = run_ranks(late_on_a_deep_tree, 5)
    for code, message in found[:4]:
        assert code == "collective-timeout", message
        assert "rank 4 is at " in message, message


def counts(root: Path) -> dict[str, Any]:
    """Of one rank: neighbours in the tree; descriptors, messages of one exchange, groups and keys of the store."""
    tree.FAN_OUT, groups.LAZY_FROM = 2, 2
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    run = rankup.init(snapshots=rankup.Snapshots(directory=root))
    opened = len(os.listdir("/proc/self/fd")) - before  # noqa: PTH208
    keys = distributed_c10d._get_default_store().num_keys()
    messages, send = [], Tree.send
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Tree, "send", lambda *args: (messages.append(1), send(*args))[1])
        run.sum(1.0)
    made = []
    for _ in range(2):
        model, opt, data = run.prepare(
            torch.nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), [torch.ones(1)] * 8, global_batch=8
        )
        for x in run.steps(data, epochs=1):
            run.backward(model(x).mean())
            run.step(opt)
        with rankup.first():
            made.append(dist.get_pg_count())
    return {"opened": opened, "keys": keys, "messages": len(messages), "groups": made}


@pytest.mark.skipif(TORCH < (2, 8), reason="gloo connects all ranks at once")
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_connections_messages_and_groups_of_a_rank_do_not_grow_with_the_ranks(tmp_path: Path):
    found = {size: run_ranks(counts, size, tmp_path / str(size)) for size in (2, 4, 8)}
    constant = set()
    for size, ranks in found.items():
        for rank, each in enumerate(ranks):
            neighbours = (rank > 0) + len(range(2 * rank + 1, min(2 * rank + 3, size)))
            assert each["messages"] == neighbours  # and as many are received
            assert each["groups"] == [1, 1]  # the default one, and loops make no more
            served = 0 if rank else groups.CLIENTS * (size - 1)
            constant.add((rank == 0, each["opened"] - neighbours - served))
    assert len(constant) == 2, found  # of rank 0, which has the store, and of all others
    two, four, eight = (ranks[0]["keys"] for ranks in found.values())
    assert eight - four == 2 * (four - two)
