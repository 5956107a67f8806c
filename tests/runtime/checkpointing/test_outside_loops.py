"""Training without a loop of rankup's, by a script that asks for snapshots."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from torch import nn

import rankup
from rankup.runtime.checkpointing.outside_loops import STEPS


def trained(folder: Path, every: str, before: int, inside: int, after: int) -> None:
    """Steps before a loop, in it, and after it."""
    run = rankup.init(snapshots=rankup.Snapshots(every=every, directory=folder))
    data = rankup.ResidentData(torch.ones(2 * max(inside, 1), 1))
    model, opt, feed = run.prepare(nn.Linear(1, 1), torch.optim.SGD, data, global_batch=2)

    def step() -> None:
        model(torch.ones(2, 1)).square().mean().backward()
        opt.step()
        opt.zero_grad()

    for _ in range(before):
        step()
    if inside:
        for _ in run.steps(feed, epochs=1):
            step()
    for _ in range(after):
        step()


@pytest.mark.parametrize(
    ("every", "before", "inside", "after", "warned"),
    [
        ("1 epochs", 3 * STEPS, 0, 0, 1),
        ("1 epochs", STEPS - 1, 0, 0, 0),
        ("1 epochs", 2, STEPS, STEPS, 0),
        ("off", STEPS, 0, 0, 0),
    ],
)
def test_a_training_without_a_loop_is_warned_of_once_if_it_asks_for_snapshots(
    every: str,
    before: int,
    inside: int,
    after: int,
    warned: int,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
):
    trained(tmp_path, every, before, inside, after)
    assert capfd.readouterr().err.count("before any loop over run.steps or run.epochs") == warned


@pytest.mark.parametrize(("which", "warned"), [("own", 1), ("steps", 0), ("epoch", 0), ("none", 0)])
def test_batches_of_another_loader_in_an_epoch_are_warned_of_once(
    which: str, warned: int, capfd: pytest.CaptureFixture[str]
):
    """As a script that was moved over from DistributedSampler: ``for epoch in run.epochs(3): for x in loader``."""
    run = rankup.init()
    rows = torch.ones(8, 1)
    model, opt, feed = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(rows), global_batch=4
    )

    def train(batches: Iterable[torch.Tensor]) -> None:
        for x in batches:
            model(x).square().mean().backward()
            opt.step()
            opt.zero_grad()

    if which == "steps":
        train(run.steps(feed, epochs=3))
    for epoch in run.epochs(6, feed):
        if which != "none":
            train(epoch if which != "own" else rows.split(4))
    assert capfd.readouterr().err.count("was not iterated, and the weights have changed in it") == warned
