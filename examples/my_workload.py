"""A workload of your own: a class with four methods, and rankup trains it on any number of processes.

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
    """Points in the plane, each on one arm of a spiral: which one? What ``--set`` gives arrives as text."""

    unit = "points"  # what a sample is called: the speed is in points/s

    def __init__(self, arms: str = "3", noise: str = "0.02") -> None:
        self.arms = int(arms)
        self.noise = float(noise)

    def defaults(self) -> dict[str, object]:
        """Used where a flag is not given; the summary marks them."""
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
        """How many of the batch are right."""
        return (output.argmax(dim=1) == target).sum()

    def _points(self, count: int, seed: int) -> TensorDataset:
        # A generator of its own: every process must see the same data, whatever it has drawn before.
        generator = torch.Generator().manual_seed(seed)
        arm = torch.arange(count) % self.arms
        radius = torch.rand(count, generator=generator)
        angle = 2 * math.pi * (radius + arm / self.arms)
        points = torch.stack((radius * angle.cos(), radius * angle.sin()), dim=1)
        return TensorDataset(points + self.noise * torch.randn(count, 2, generator=generator), arm)
