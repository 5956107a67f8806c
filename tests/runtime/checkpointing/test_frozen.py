"""Layers that are unfrozen in the middle of a training, by a script that is then started again."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.errors import RankupError
from rankup.runtime.checkpointing import stop
from rankup.runtime.checkpointing.policy import Snapshots
from rankup.strategies import make_strategy

SAMPLES, BATCH, WIDTH, EPOCHS = 22, 6, 5, 4


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))


def by_hand() -> list[torch.Tensor]:
    torch.manual_seed(3)
    model = net().double()
    model[0].requires_grad_(False)
    model[2].requires_grad_(False)
    opt = torch.optim.SGD(model[4].parameters(), lr=0.1, momentum=0.9)
    for epoch in range(EPOCHS):
        unfreeze(model, opt, epoch)
        for x in data().split(BATCH):
            step(model, opt, x)
    return [parameter.detach() for parameter in model.parameters()]


def unfreeze(model: nn.Sequential, opt: torch.optim.Optimizer, epoch: int) -> None:
    for at, index, lr in ((1, 2, 0.05), (2, 0, 0.02)):
        if epoch == at:
            model[index].requires_grad_(True)
            opt.add_param_group({"params": model[index].parameters(), "lr": lr})


def step(model: nn.Module, opt: torch.optim.Optimizer, x: torch.Tensor) -> None:
    opt.zero_grad()
    (model(x) - x.sum(1, keepdim=True).sin()).square().mean().backward()
    opt.step()


def data() -> torch.Tensor:
    return torch.linspace(-2, 2, SAMPLES * WIDTH, dtype=torch.float64).reshape(SAMPLES, WIDTH).sin()


def train(directory: str, stop_at: int, name: str, spoil: bool = False) -> Any:
    """Stopped by a request after ``stop_at`` steps; the weights, or None where it was stopped."""
    os.environ["RANKUP_RUN_DIR"] = directory
    stop.AGREE_EVERY_S = 0.0
    run = rankup.init(
        seed=3, precision="fp64", strategy=make_strategy(name), snapshots=Snapshots(every="off")
    )
    torch.manual_seed(3)
    model = net()
    model[0].requires_grad_(spoil)
    model[2].requires_grad_(False)
    wrapped, opt, feed = run.prepare(
        model,
        torch.optim.SGD(model[4].parameters(), lr=0.1, momentum=0.9),
        rankup.ResidentData(data()),
        global_batch=BATCH,
        shuffle=False,
    )
    try:
        for epoch in run.epochs(EPOCHS, feed):
            unfreeze(run._context.models[0], opt, epoch.index)
            for x in epoch:
                step(wrapped, opt, x)
                if run.global_step + 1 == stop_at and run.world.is_main:
                    (Path(directory) / "STOP").write_text("user 0\n")
    except SystemExit:
        return None
    except RankupError as error:
        return error.code
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in run._context.models[0].parameters()]
    return [parameter.detach() for parameter in whole]


# In the middle of an epoch: its code before the inner loop is run again.
@pytest.mark.repeated
@pytest.mark.parametrize(
    ("name", "world_size", "at"),
    [pytest.param("none", 1, [2, 6, 11, 14], marks=pytest.mark.campaign), ("ddp", 2, [6]), ("fsdp", 2, [11])],
)
def test_what_was_unfrozen_before_an_interruption_is_trained_after_it(name, world_size, at):
    expected = by_hand()
    ends = []
    for stops in ([], at):
        with tempfile.TemporaryDirectory() as directory:
            for step in stops:
                assert run_ranks(train, world_size, directory, step, name) == [None] * world_size
                (Path(directory) / "STOP").unlink(missing_ok=True)
            if stops:
                refused = run_ranks(train, world_size, directory, 0, name, True)
                assert refused == ["other-frozen"] * world_size
            ends += [run_ranks(train, world_size, directory, 0, name)]
    for weights in ends[0]:
        assert all((a - b).abs().max() < 1e-12 for a, b in zip(weights, expected, strict=True))
    for once, resumed in zip(*ends, strict=True):
        assert all(map(torch.equal, once, resumed))
