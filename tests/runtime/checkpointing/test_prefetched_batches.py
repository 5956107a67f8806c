"""Scripts that take batches before they train on them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import rankup
from rankup.errors import RankupError


def prefetched(batches: Any) -> Iterator[Any]:
    """As many scripts have it: the next batch is taken first."""
    each = iter(batches)
    following = next(each, None)
    while following is not None:
        batch, following = following, next(each, None)
        yield batch


def barred(batches: Any) -> Iterator[Any]:
    yield from batches


HOW = {"prefetcher": prefetched, "list": list, "plain": iter, "bar": barred}


@pytest.mark.parametrize(
    ("which", "warned"),
    [("prefetcher", 1), ("list", 1), ("plain", 0), ("bar", 0), ("window", 0), ("sum", 0), ("behind", 0)],
)
def test_batches_that_are_taken_ahead_are_warned_of_once(
    which: str, warned: int, capfd: pytest.CaptureFixture[str]
):
    """``window``: a step after every second batch, and one for the rest; ``sum``: one step after the inner loop for all
    of its losses; ``behind``: a step for each batch, and another one for a penalty."""
    run = rankup.init()
    model, opt, _ = run.prepare(
        nn.Linear(1, 1),
        lambda p: torch.optim.SGD(p, lr=0.01),
        rankup.ResidentData(torch.ones(20, 1)),
        global_batch=4,
    )

    def step(loss: torch.Tensor) -> None:
        opt.zero_grad()
        loss.backward()
        opt.step()

    for epoch in run.epochs(3):
        losses = []
        for number, x in enumerate(HOW.get(which, iter)(epoch), 1):
            losses.append(model(x).square().mean())
            if which == "window":
                losses[-1].backward()
                if number % 2 == 0:
                    opt.step()
                    opt.zero_grad()
            elif which != "sum":
                step(losses[-1])
        if which == "window":
            opt.step()
            opt.zero_grad()
        elif which == "sum":
            step(torch.stack(losses).mean())
        elif which == "behind":
            step(model.weight.square().sum())
    assert capfd.readouterr().err.count("takes batches before it trains on them") == warned


def prepared() -> tuple[Any, nn.Module, torch.optim.Optimizer, Any]:
    run = rankup.init()
    dataset = rankup.ResidentData(torch.ones(20, 1))
    return run, *run.prepare(nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.01), dataset, global_batch=4)


@pytest.mark.parametrize(
    ("how", "warned"), [("prefetcher", 1), ("list", 1), ("plain", 0), ("windows", 0), ("sum", 0)]
)
def test_batches_that_are_held_after_a_flat_loop_are_warned_of(
    how: str, warned: int, capfd: pytest.CaptureFixture[str]
):
    """``windows``: a step for two bodies, and one after the loop for the rest; ``sum``: one after the loop for all."""
    run, model, opt, data = prepared()
    bodies = 0
    for x in HOW.get(how, iter)(run.steps(data, epochs=1)):
        bodies += 1
        model(x).square().mean().backward()
        if how != "sum" and (how != "windows" or bodies % 2 == 0):
            opt.step()
            opt.zero_grad()
    if how in ("windows", "sum"):
        opt.step()
    assert bodies == 5
    assert capfd.readouterr().err.count("takes batches before it trains on them") == warned


def in_background(batches: Any) -> Iterator[Any]:
    """As ``prefetch_generator`` and many scripts have it."""
    ready: queue.Queue[Any] = queue.Queue(2)
    over = object()

    def fill() -> None:
        for batch in batches:
            ready.put(batch)
        ready.put(over)

    threading.Thread(target=fill, daemon=True, name="prefetcher").start()
    return iter(ready.get, over)


def test_batches_that_another_thread_takes_are_an_error_before_the_first_step():
    run, model, opt, data = prepared()
    before = model.weight.detach().clone()
    model(next(in_background(run.steps(data, epochs=1)))).square().mean().backward()
    with pytest.raises(RankupError, match=r"thread 'prefetcher' and trained in 'MainThread'") as caught:
        opt.step()
    assert caught.value.code == "batches-in-thread" and "num_workers=" in caught.value.hint
    assert torch.equal(before, model.weight)


def test_a_whole_training_may_run_in_a_thread():
    run, model, opt, data = prepared()
    steps = []

    def train() -> None:
        for x in run.steps(data, epochs=1):
            model(x).square().mean().backward()
            opt.step()
            opt.zero_grad()
            steps.append(run.global_step)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert len(steps) == 5
