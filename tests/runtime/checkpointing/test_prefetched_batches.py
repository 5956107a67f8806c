"""Scripts that take batches before they train on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import rankup


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
    assert capfd.readouterr().err.count("takes batches of the epoch before it trains on them") == warned
