"""What ranks ask of the store of rank 0: counted, for several numbers of ranks."""

from __future__ import annotations

import threading
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist

from rankup.runtime.distributed import rendezvous, waiting
from rankup.runtime.distributed.waiting import Waiting, by_place
from rankup.world import World


class Counting:
    """A store that counts requests, except those by which a rank polls."""

    def __init__(self, store: Any, requests: Counter[str]) -> None:
        self._store = store
        self._requests = requests

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def call(*args: Any) -> Any:
            polls = name == "check" or (name == "add" and args[1] == 0)
            self._requests["polls" if polls else name] += 1
            return method(*args)

        return call


def world(rank: int, world_size: int) -> World:
    return World(rank, rank, world_size, world_size)


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_rank_0_asks_for_one_number_until_all_have_come(world_size: int):
    requests: Counter[str] = Counter()
    store = dist.HashStore()
    late = threading.Timer(0.2, lambda: store.add("rankup/came", world_size - 1))
    late.start()
    began = time.monotonic()
    rendezvous._wait_for_all(Counting(store, requests), world(0, world_size), timedelta(seconds=60))
    assert set(requests) == {"polls"}
    assert requests["polls"] <= 2 + (time.monotonic() - began) / 0.05  # whatever the number of ranks


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_one_rank_asks_where_the_others_are_for_all_that_want_to_know(world_size: int, monkeypatch):
    requests: Counter[str] = Counter()
    store = dist.HashStore()
    monkeypatch.setattr(waiting, "_store", lambda: Counting(store, requests))
    monkeypatch.setattr(waiting, "POLL_S", 30.0)  # nobody answers by itself
    ranks = [Waiting(world(rank, world_size)) for rank in range(world_size)]
    for rank in ranks:
        rank._poll_s = 0.1
    heard: list[str] = []
    threads = [threading.Thread(target=lambda rank=rank: heard.append(rank.others())) for rank in ranks]
    for thread in threads:
        thread.start()
    while store.add("claimed/1", 0) < world_size:
        time.sleep(0.01)
    for rank in ranks:
        rank._answer(1)
    for thread in threads:
        thread.join()
    for rank in ranks:
        rank._over.set()
    assert len(heard) == world_size and len(set(heard)) == 1
    named = ", ".join(map(str, range(world_size)))
    assert heard[0].startswith(f"ranks {named} are at "), heard[0]
    del requests["polls"]
    # One entry, and one text read, of each rank; and of each that it asks, is at its place, has answered, has read. One
    # rank of the place tells its values.
    assert requests == {"append": world_size + 1, "get": world_size, "add": 4 * world_size + 1, "set": 1}


def test_more_ranks_look_for_questions_less_often(monkeypatch):
    monkeypatch.setattr(waiting, "_store", lambda: None)
    polls = {size: Waiting(world(0, size))._poll_s for size in (2, 1_000, 2_000, 10_000)}
    assert polls == {2: 2.0, 1_000: 2.0, 2_000: 4.0, 10_000: 20.0}


def test_of_many_ranks_those_that_are_elsewhere_are_named():
    places = {"is at train.py:52": [r for r in range(10_000) if r != 7], "does not answer": [7]}
    assert by_place(places) == (
        "rank 7 does not answer; ranks 0, 1, 2, 3, 4, 5, 6, 8 and 9991 more are at train.py:52"
    )
    everywhere = by_place({f"is at train.py:{line}": [line] for line in range(100)})
    assert everywhere.startswith("rank 0 is at train.py:0; ") and everywhere.endswith("; 92 more places")
