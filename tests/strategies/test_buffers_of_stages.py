"""Buffers of a pipeline's stages: each is saved and restored under its name in the whole model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from toy import everywhere

import rankup
from programs.program import points
from ranks import run_ranks
from rankup.strategies import make_strategy
from rankup.strategies.base import TORCH

pytestmark = pytest.mark.skipif(TORCH < (2, 8), reason="pp on CPUs needs torch 2.8")


class Counted(nn.Module):
    """Its buffers depend on what it has seen: one in the ``state_dict``, one that is not."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(4, width)
        self.back = nn.Linear(width, 4)
        self.register_buffer("seen", torch.zeros(width))
        self.register_buffer("largest", torch.zeros(()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.linear(x))
        if self.training:
            with torch.no_grad():
                self.seen += hidden.sum(0)
                self.largest.copy_(torch.maximum(self.largest, hidden.max()))
        return self.back(hidden) + x


class Net(nn.Module):
    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Counted(width) for width in widths])
        self.head = nn.Linear(4, 1)


def stages(model: Net, n: int) -> list[nn.Module]:
    each = len(model.blocks) // n
    found = [nn.Sequential(*model.blocks[i * each : (i + 1) * each]) for i in range(n)]
    found[-1].append(model.head)
    return found


def trained(folder: Path, epochs: int, widths: tuple[int, ...]) -> dict[str, Any]:
    """All buffers of the model after ``epochs`` of it, from the snapshot of an earlier call."""
    strategy = make_strategy("pp", stages=stages, loss=F.mse_loss)
    snapshots = rankup.Snapshots(every="1 epochs", directory=folder)
    run = rankup.init(precision="fp64", strategy=strategy, snapshots=snapshots)
    model, opt, data = run.prepare(
        Net(widths), lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(*points(24)), global_batch=8
    )
    for epoch in run.epochs(epochs):
        for x, y in epoch:
            run.strategy.forward_backward(model, F.mse_loss, x, y)
            run.step(opt)
    found = run._context.strategy.buffers(run._context.models[0])
    return everywhere({name: buffer.clone() for name, buffer in found.items()}, "pp")


@pytest.mark.slow
@pytest.mark.parametrize("widths", [pytest.param((3, 3, 3, 3), marks=pytest.mark.campaign), (2, 3, 4, 5)])
@pytest.mark.parametrize(
    "worlds", [(4, 2), *(pytest.param((2, n), marks=pytest.mark.campaign) for n in (2, 4))]
)
def test_buffers_of_stages_are_those_of_the_whole_model(
    tmp_path: Path, worlds: tuple[int, int], widths: tuple[int, ...]
):
    expected = run_ranks(trained, worlds[1], tmp_path / "whole", 2, widths)[0]
    assert {"blocks.3.seen", "blocks.3.largest"} < expected.keys()
    run_ranks(trained, worlds[0], tmp_path / "parts", 1, widths)
    for found in run_ranks(trained, worlds[1], tmp_path / "parts", 2, widths):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert torch.allclose(found[name], value, rtol=0, atol=1e-12), name
