"""A workload of your own: a class with four methods. rankup trains it on any number of processes.

cd examples
rankup train my_workload:Spirals --nproc-per-node 2
rankup train my_workload:Spirals --set arms=5 --set noise=0.1
rankup scale my_workload:Spirals --nproc-per-node 1,2
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset


class Spirals:
    """Points in the plane, each on one arm of a spiral; the class is the arm. Values of ``--set`` are text."""

    unit = "points"  # the name of a sample: the speed is printed in points/s

    def __init__(self, arms: str = "3", noise: str = "0.02") -> None:
        self.arms = int(arms)
        self.noise = float(noise)

    def defaults(self) -> dict[str, object]:
        """Values for flags that are not given. The summary marks them."""
        return {"data": "spirals", "epochs": 10, "lr": 0.01, "gamma": 0.9}

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, self.arms)
        )

    def datasets(self, source: str) -> tuple[TensorDataset, TensorDataset]:
        """Training and test data: any Dataset of (input, target). ``source`` is the value of ``--data``."""
        return self._points(6000, seed=1), self._points(1000, seed=2)

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The mean over the batch."""
        return F.cross_entropy(output, target)

    def correct(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The number of right answers in the batch."""
        return (output.argmax(dim=1) == target).sum()

    def _points(self, count: int, seed: int) -> TensorDataset:
        # Use a separate generator with a fixed seed, because every process must see the same data.
        generator = torch.Generator().manual_seed(seed)
        arm = torch.arange(count) % self.arms
        radius = torch.rand(count, generator=generator)
        angle = 2 * math.pi * (radius + arm / self.arms)
        points = torch.stack((radius * angle.cos(), radius * angle.sin()), dim=1)
        return TensorDataset(points + self.noise * torch.randn(count, 2, generator=generator), arm)
