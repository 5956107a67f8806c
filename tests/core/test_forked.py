"""One function over many items, in copies of this process."""

import os
import signal
import threading

import pytest

from rankup.core import forked
from rankup.errors import RankupError


@pytest.fixture(autouse=True)
def three_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # the test run may have threads of its own


def test_results_come_in_the_order_of_the_items_from_several_processes():
    found = list(forked.each(lambda item: (item, os.getpid()), range(10)))

    assert [item for item, _ in found] == list(range(10))
    pids = {pid for _, pid in found}
    assert len(pids) == 3 and os.getpid() not in pids


def test_results_larger_than_a_pipe_arrive_whole():
    sizes = [3_000_000, 1, 2_000_000]

    assert [len(one) for one in forked.each(bytes, sizes)] == sizes


def test_what_the_function_raises_is_raised_at_its_item_with_all_its_fields():
    def fails(item):
        if item == 2:
            raise RankupError("bad-item", "the item is bad", hint="leave it out")
        return item

    results = forked.each(fails, range(4))
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(RankupError) as caught:
        next(results)
    assert (caught.value.code, caught.value.hint) == ("bad-item", "leave it out")


def test_items_of_a_copy_that_is_killed_are_computed_here():
    me = os.getpid()

    def dies(item):
        if item == 1 and os.getpid() != me:
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    assert list(forked.each(dies, range(7))) == list(range(7))


def test_no_copy_outlives_a_caller_that_stops_early():
    results = forked.each(lambda item: os.getpid(), range(1000))
    pid = next(results)
    results.close()

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("why", ["one core", "one item", "a thread"])
def test_nothing_is_forked_where_it_is_unsafe_or_brings_nothing(why, monkeypatch):
    items = [0] if why == "one item" else [0, 1]
    if why == "one core":
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5})
    if why == "a thread":
        monkeypatch.setattr(threading, "active_count", lambda: 2)

    assert set(forked.each(lambda item: os.getpid(), items)) == {os.getpid()}
