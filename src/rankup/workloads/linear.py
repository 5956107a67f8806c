"""``linear``: one layer that learns a known line in very short epochs. For trying out snapshots and restarts.

The targets are a fixed linear function of the inputs plus a little noise, so the loss falls from about 30 to the
variance of the noise. A prediction is right if its error is less than 0.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from rankup.errors import RankupError
from rankup.runtime.data.resident import ResidentData
from rankup.workloads.data.synthetic import SYNTHETIC
from rankup.workloads.settings import whole

INPUTS = 20
NOISE = 0.1  # standard deviation
CLOSE = 0.5


class Linear:
    """``--set samples=N``: N samples for training, and a quarter as many for test."""

    def __init__(self, samples: str = "2048") -> None:
        self._samples = whole("samples", samples, at_least=4)

    def defaults(self) -> Mapping[str, Any]:
        return {
            "data": SYNTHETIC,
            "optimizer": "sgd",
            "lr": 0.01,
            "momentum": 0.0,
            "gamma": 1.0,
            "epochs": 10,
        }

    def model(self) -> nn.Module:
        return nn.Linear(INPUTS, 1)

    def datasets(self, source: str) -> tuple[ResidentData, ResidentData]:
        if source != SYNTHETIC:
            raise RankupError(
                "other-data",
                "linear makes its own data",
                context=f"--data {source}",
                hint="leave --data out",
            )
        return _points(self._samples, seed=1), _points(max(self._samples // 4, 1), seed=2)

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(output, target)

    def correct(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return ((output - target).abs() < CLOSE).sum()


def _points(count: int, seed: int) -> ResidentData:
    """Inputs (count, INPUTS) and targets (count, 1), the same in every process."""
    line = torch.linspace(-2, 2, INPUTS)[:, None]
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, INPUTS, generator=generator)
    return ResidentData(x, x @ line + 1 + NOISE * torch.randn(count, 1, generator=generator))
