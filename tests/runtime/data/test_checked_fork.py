"""A forked loader worker that never reaches its first line, as Python before 3.11.10 may leave it, is replaced."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import rankup
from ranks import run_ranks
from rankup.runtime.data import checked_fork
from rankup.runtime.data.checked_fork import CheckedForkContext, checked, fork_may_deadlock


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ((3, 10, 14), True),
        ((3, 10, 15), False),
        ((3, 11, 0), True),
        ((3, 11, 9), True),
        ((3, 11, 10), False),
        ((3, 12, 0), False),
        ((3, 14, 2), False),
    ],
)
def test_the_versions_with_the_defect_are_known(version, expected):
    assert fork_may_deadlock(version) is expected


def test_only_a_context_that_forks_is_replaced_and_only_where_forks_may_deadlock(monkeypatch):
    others = ["spawn", multiprocessing.get_context("forkserver"), "no such context"]
    forks = ["fork", multiprocessing.get_context("fork")]
    monkeypatch.setattr(checked_fork, "fork_may_deadlock", lambda: True)
    assert all(checked(given) is given for given in others)
    assert all(isinstance(checked(given), CheckedForkContext) for given in forks)
    monkeypatch.setattr(checked_fork, "fork_may_deadlock", lambda: False)
    assert all(checked(given) is given for given in [*others, *forks, None])


def trained(stuck: str | None, workers: int) -> list[float]:
    """The samples of an epoch. The forked children whose numbers are in ``stuck`` wait before their first line."""
    checked_fork.fork_may_deadlock = lambda: True
    checked_fork.WAIT_S = 0.5
    run = rankup.init(seed=1)
    forks = 0

    def count() -> None:
        nonlocal forks
        forks += 1

    def wait() -> None:
        if stuck is not None and str(forks) in stuck:
            time.sleep(600)

    os.register_at_fork(before=count, after_in_child=wait)
    model, opt, data = run.prepare(
        nn.Linear(1, 1),
        lambda p: torch.optim.SGD(p, lr=0.0),
        TensorDataset(torch.arange(12.0).reshape(-1, 1)),
        global_batch=4,
        num_workers=workers,
        multiprocessing_context="fork",
    )
    seen: list[float] = []
    for (x,) in run.steps(data, epochs=1):
        run.backward(model(x).mean())
        run.step(opt)
        seen += x.flatten().tolist()
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert not children, "a stuck worker is left"
    return seen


@pytest.mark.repeated
@pytest.mark.parametrize("stuck", ["1", "2 3"])  # of the comparison of the data; both attempts of a worker
def test_a_worker_that_is_stuck_in_its_fork_is_replaced(stuck):
    whole = run_ranks(trained, 2, None, 2)
    assert sorted(sum(whole, [])) == list(range(12))
    assert run_ranks(trained, 2, stuck, 2) == whole
