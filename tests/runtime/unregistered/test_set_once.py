"""What the first step of a training sets, the first step of a resume must set alike: else it was no cache."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.errors import RankupError

X = torch.linspace(-1, 1, 12, dtype=torch.float64)[:, None]  # three steps in an epoch


class Held:
    teacher: Any = None
    first_loss: float | None = None
    mask: torch.Tensor | None = None
    order: torch.Tensor | None = None


def a_teacher(held: Held, model: nn.Module, x: torch.Tensor, epoch: int) -> torch.Tensor:
    if held.teacher is None:
        held.teacher = copy.deepcopy(model)
    with torch.no_grad():
        target: torch.Tensor = held.teacher(x) + x
    return target


def a_first_loss(held: Held, model: nn.Module, x: torch.Tensor, epoch: int) -> torch.Tensor:
    if held.first_loss is None:
        held.first_loss = (model(x) - x).square().mean().item()
    return held.first_loss * x


def a_mask(held: Held, model: nn.Module, x: torch.Tensor, epoch: int) -> torch.Tensor:
    if held.mask is None:
        held.mask = torch.ones(1, dtype=torch.float64)
    return held.mask * x


def an_order_of_the_epoch(held: Held, model: nn.Module, x: torch.Tensor, epoch: int) -> torch.Tensor:
    held.order = torch.randperm(5, generator=torch.Generator().manual_seed(epoch))
    return held.order[:1].double() * x


def a_mask_of_each_step(held: Held, model: nn.Module, x: torch.Tensor, epoch: int) -> torch.Tensor:
    held.mask = torch.ones(len(x), 1, dtype=torch.float64)  # of another size where the batch is short
    return held.mask * x


Target = Callable[[Held, nn.Module, torch.Tensor, int], torch.Tensor]


def train(
    target: Target, folder: Path, every: int, killed: int | None, batch: int = 4
) -> tuple[str, list[float]]:
    run = rankup.init(
        snapshots=rankup.Snapshots(every=f"{every} steps", directory=folder, asynchronous=False),
        precision="fp64",
    )
    torch.manual_seed(0)
    model, opt, data = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(X), global_batch=batch
    )
    held = Held()
    try:
        for epoch in run.epochs(4):
            for x in epoch:
                if run.global_step == killed:
                    return "killed", []
                (model(x) - target(held, model, x, epoch.index)).square().mean().backward()
                opt.step()
                opt.zero_grad()
    except RankupError as error:
        return f"{error.code}: {error}", []
    return "", [value.item() for value in model.state_dict().values()]


def attempts(target: Target, folder: Path, every: int, killed: int, batch: int = 4) -> tuple[str, bool]:
    """What a resume ends with, and whether the weights are those of an uninterrupted training."""
    ((_, whole),) = run_ranks(train, 1, target, folder / "whole", every, None, batch)
    ((said, _),) = run_ranks(train, 1, target, folder / "cut", every, killed, batch)
    assert said == "killed"
    ((said, weights),) = run_ranks(train, 1, target, folder / "cut", every, None, batch)
    return said, weights == whole


@pytest.mark.repeated
@pytest.mark.parametrize(("target", "name"), [(a_teacher, "held.teacher"), (a_first_loss, "held.first_loss")])
@pytest.mark.parametrize(
    ("every", "killed"),
    [(2, 5), pytest.param(2, 9, marks=pytest.mark.campaign), (3, 4)],
    ids=["epoch 2", "epoch 3", "border"],
)
def test_what_a_resume_sets_otherwise_is_named(
    tmp_path: Path, target: Target, name: str, every: int, killed: int
):
    said, _ = attempts(target, tmp_path, every, killed)
    assert said.startswith("state-lost") and name in said, said


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("target", "every", "killed"),
    # In the third epoch an order of each epoch is noted: it was not there when the loop began.
    [(a_mask, 2, 5), (a_mask, 3, 4), (an_order_of_the_epoch, 3, 4)],
    ids=["mask, epoch 2", "mask, border", "order, border"],
)
def test_what_it_sets_alike_or_in_each_epoch_is_no_loss(
    tmp_path: Path, target: Target, every: int, killed: int
):
    assert attempts(target, tmp_path, every, killed) == ("", True)


@pytest.mark.repeated
@pytest.mark.parametrize("every", [1, 2])
def test_what_each_step_makes_anew_is_no_loss_where_the_first_batch_of_a_resume_is_short(
    tmp_path: Path, every: int
):
    assert attempts(a_mask_of_each_step, tmp_path, every, 2, batch=5) == ("", True)
