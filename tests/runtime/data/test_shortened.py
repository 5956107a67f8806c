"""Shortened epochs and loops: what `rankup verify --quick` trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, IterableDataset, SequentialSampler

import rankup
from ranks import run_ranks
from rankup.runtime.data.batches import EPOCH_STEPS, EPOCHS

QUICK = {EPOCH_STEPS: "3", EPOCHS: "2"}


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self):
        yield from torch.arange(60.0).reshape(20, 3)


def started(data: Any, **options: Any) -> Any:
    run = rankup.init()
    sgd = lambda p: torch.optim.SGD(p, lr=0.001)  # noqa: E731
    return run, *run.prepare(nn.Linear(3, 1), sgd, data, **options)


def step(model: nn.Module, opt: torch.optim.Optimizer, x: torch.Tensor) -> None:
    model(x).square().mean().backward()
    opt.step()
    opt.zero_grad()


def resident() -> rankup.ResidentData:
    return rankup.ResidentData(torch.arange(60.0).reshape(20, 3))


def epochs(sampled: bool) -> list[Any]:
    order: dict[str, Any] = {"global_batch": 2}
    if sampled:
        order = {"batch_sampler": BatchSampler(SequentialSampler(range(20)), 2, drop_last=False)}
    run, model, opt, data = started(resident(), **order)
    told = [len(data)]
    for epoch in run.epochs(5):
        for x in epoch:
            step(model, opt, x)
        told.append(run.global_step)
        told.append(sum(len(batch) for batch in run.batches(resident(), global_batch=2)))
    return told


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("world", [1, 2])
def test_an_epoch_an_evaluation_and_a_loop_are_cut(sampled: bool, world: int):
    for told in run_ranks(epochs, world, sampled, env=QUICK):
        assert told == [3, 3, 6 // world, 6, 6 // world]


def test_without_the_variables_nothing_is_cut():
    (told,) = run_ranks(epochs, 1, False)
    assert told == [10, 10, 20, 20, 20, 30, 20, 40, 20, 50, 20]


def stages() -> list[int]:
    run, model, opt, data = started(resident(), global_batch=2)
    ends = []
    for x in run.steps(data, epochs=4):
        step(model, opt, x)
    ends.append(run.global_step)
    _, _, data = run.prepare(nn.Linear(3, 1), None, resident(), global_batch=2)
    for x in run.steps(data, steps=500):
        step(model, opt, x)
    ends.append(run.global_step)
    return ends


def test_each_stage_is_cut():
    assert run_ranks(stages, 1, env=QUICK) == [[6, 12]]


def one_step() -> int:
    run, model, opt, data = started(resident(), global_batch=2)
    for x in run.steps(data, steps=1):
        step(model, opt, x)
    return run.global_step


def test_a_loop_that_is_shorter_stays_as_it_is():
    assert run_ranks(one_step, 1, env=QUICK) == [1]


def stream() -> list[int]:
    run, model, opt, data = started(Stream(), global_batch=2, sharded=False)
    for epoch in run.epochs(5):
        for x in epoch:
            step(model, opt, x)
    seen = sum(len(batch) for batch in run.batches(Stream(), global_batch=2, sharded=False))
    return [run.global_step, int(run.sum(seen))]


@pytest.mark.filterwarnings("ignore:an IterableDataset has no order")
@pytest.mark.parametrize("world", [1, 2])
def test_a_stream_is_cut_too(world: int, tmp_path: Path):
    assert run_ranks(stream, world, env=QUICK) == [[6, 6]] * world
