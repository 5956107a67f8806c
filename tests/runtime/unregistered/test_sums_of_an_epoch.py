"""What the code before an inner loop begins anew in each epoch: a resume in the middle of an epoch says so."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks


class Average:
    def __init__(self) -> None:
        self.sum, self.count = 0.0, 0

    def add(self, value: float) -> None:
        self.sum, self.count = self.sum + value, self.count + 1


def one_epoch(run: Any, model: Any, opt: Any, epoch: Any, killed: int | None) -> bool:
    total, losses, average, steps = 0.0, [], Average(), 0
    printed = 0
    run.forget("printed")
    for number, x in enumerate(epoch):
        if run.global_step == killed:
            return False
        loss = model(x).square().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        share = loss.item()
        total += share
        losses.append(share)
        average.add(share)
        steps += number >= 0
        printed = printed + 2
    return total > 0 and len(losses) > 0


def said(folder: Path, killed: int | None, every: str) -> str:
    """What rank 0 says in this attempt."""
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream):
        train(folder, killed, every)
    return stream.getvalue()


def train(folder: Path, killed: int | None, every: str) -> None:
    run = rankup.init(snapshots=rankup.Snapshots(every=every, directory=folder, asynchronous=False))
    data = rankup.ResidentData(torch.linspace(-1, 1, 20)[:, None])
    model, opt, data = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=4
    )
    for epoch in run.epochs(2):
        if not one_epoch(run, model, opt, epoch, killed):
            return


@pytest.mark.repeated
@pytest.mark.parametrize("killed", [3, 8])
def test_a_resume_in_the_middle_of_an_epoch_names_the_sums_that_begin_anew(tmp_path: Path, killed: int):
    assert "begins anew" not in run_ranks(said, 2, tmp_path, killed, "2 steps")[0]
    first, second = run_ranks(said, 2, tmp_path, None, "2 steps")
    assert "begins anew" not in second  # one rank speaks
    counting, line = (line for line in first.splitlines() if "begins anew" in line)
    assert "enumerate" in counting
    for name in ("total (", "losses (", "average.sum (", "average.count (", "steps ("):
        assert name in line, line
    assert "0.0 now" in line and "run.meter" in line
    for name in ("share", "number", "printed", "model"):
        assert f"{name} (" not in line, line


def test_a_resume_at_an_epochs_beginning_says_nothing(tmp_path: Path):
    run_ranks(said, 1, tmp_path, 7, "1 epoch")
    assert "begins anew" not in run_ranks(said, 1, tmp_path, None, "1 epoch")[0]


def train_rounds(folder: Path, killed: int | None) -> str:
    """Two trainings, the second of which is killed: ``loss`` is what the first one has left, ``total`` a sum."""
    stream = io.StringIO()
    for number in range(2):
        run = rankup.init(
            name=f"round-{number}",
            snapshots=rankup.Snapshots(every="2 steps", directory=folder, asynchronous=False),
        )
        data = rankup.ResidentData(torch.linspace(-1, 1, 20)[:, None])
        model, opt, feed = run.prepare(
            nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=4
        )
        with contextlib.redirect_stderr(stream):
            for epoch in run.epochs(2, feed):
                total = 0.0
                for x in epoch:
                    if number == 1 and run.global_step == killed:
                        return stream.getvalue()
                    loss = model(x).square().mean()
                    run.backward(loss)
                    run.step(opt)
                    total += loss.item()
    return stream.getvalue()


def test_what_a_training_before_has_left_is_no_sum_of_this_one(tmp_path: Path):
    run_ranks(train_rounds, 1, tmp_path, 3)
    (said,) = run_ranks(train_rounds, 1, tmp_path, None)
    lines = [line for line in said.splitlines() if "begins anew" in line]  # also of the first one's last step
    assert len(lines) == 2 and all("total (" in line and "loss (" not in line for line in lines), said


def over(how: str, run: Any, epoch: Any) -> Any:
    return {
        "plain": lambda: epoch,
        "enumerate": lambda: (x for _, x in enumerate(epoch)),
        "of a wrapper": lambda: (x for _, x in enumerate(x for x in epoch)),
        "of map": lambda: (x for _, x in enumerate(map(torch.Tensor.float, epoch))),
        "zip": lambda: (x for x, _ in zip(epoch, range(100), strict=False)),
        "from its place": lambda: (x for _, x in enumerate(epoch, start=epoch.done)),
    }[how]()


def enumerating(folder: Path, killed: int | None, how: str) -> str:
    run = rankup.init(snapshots=rankup.Snapshots(every="2 steps", directory=folder, asynchronous=False))
    data = rankup.ResidentData(torch.linspace(-1, 1, 20)[:, None])
    model, opt, data = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=4
    )
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream):
        for _, epoch in enumerate(run.epochs(2)):
            for x in over(how, run, epoch):
                if run.global_step == killed:
                    return ""
                model(x).square().mean().backward()
                opt.step()
                opt.zero_grad()
    return stream.getvalue()


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("how", "named"),
    [
        ("plain", ""),
        ("enumerate", "enumerate"),
        ("of a wrapper", "enumerate"),
        ("of map", "enumerate"),
        ("zip", "zip"),
        ("from its place", ""),
    ],
)
def test_what_counts_the_batches_of_a_resumed_epoch_from_0_is_named(tmp_path: Path, how: str, named: str):
    run_ranks(enumerating, 1, tmp_path, 8, how)
    (text,) = run_ranks(enumerating, 1, tmp_path, None, how)
    assert (f"and {named} goes over its batches and begins anew" in text) if named else text == ""
