"""``mnist-cnn``: the small convolutional network of most PyTorch tutorials.

Two 3×3 convolutions (32 and 64 channels), max-pool, dropout 0.25, dense 128, dropout 0.5, dense 10, log-softmax; the
loss is the negative log-likelihood. Three changes make it faster without changing the network: images are in
channels-last order, which is faster for convolutions and the pool; the pool comes before the second ReLU (max and ReLU
commute, and only a quarter of the values is left); dropout draws bytes (``dropout.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from rankup.errors import RankupError
from rankup.runtime.data.resident import Columns, ResidentData
from rankup.runtime.seed import SampleRandom
from rankup.workloads.data import find_or_fetch, is_present, load_images
from rankup.workloads.data.places import home
from rankup.workloads.dropout import ByteDropout
from rankup.workloads.settings import switch

# Mean and standard deviation of MNIST's training pixels in [0, 1], as its tutorials use them for all three sets.
MEAN, STD = 0.1307, 0.3081


class MnistNet(nn.Module):
    """(n, 1, 28, 28) → log-probabilities (n, 10)."""

    def __init__(self, dropout: bool = True) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dense1 = nn.Linear(64 * 12 * 12, 128)
        self.dense2 = nn.Linear(128, 10)
        self.dropout1 = ByteDropout(0.25 if dropout else 0.0)
        self.dropout2 = ByteDropout(0.5 if dropout else 0.0)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part, _ in PARTS:
            x = part(self, x)
        return x


def _edges(net: Any, x: torch.Tensor) -> torch.Tensor:
    return F.relu(net.conv1(x))


def _shapes(net: Any, x: torch.Tensor) -> torch.Tensor:
    return F.relu(F.max_pool2d(net.conv2(x), 2))


def _dense(net: Any, x: torch.Tensor) -> torch.Tensor:
    return net.dropout2(F.relu(net.dense1(net.dropout1(x.flatten(1)))))  # type: ignore[no-any-return]


def _classes(net: Any, x: torch.Tensor) -> torch.Tensor:
    return F.log_softmax(net.dense2(x), dim=1)


# The forward pass in parts, each with its layers. Pipeline stages consist of these parts.
PARTS = (
    (_edges, ("conv1",)),
    (_shapes, ("conv2",)),
    (_dense, ("dropout1", "dense1", "dropout2")),
    (_classes, ("dense2",)),
)


class Stage(nn.Module):
    """Some of a network's ``PARTS`` and their layers."""

    def __init__(self, net: MnistNet, first: int, end: int) -> None:
        super().__init__()
        self._parts = [part for part, _ in PARTS[first:end]]
        for _, layers in PARTS[first:end]:
            for name in layers:
                self.add_module(name, getattr(net, name))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self._parts:
            x = part(self, x)
        return x


class MnistCnn:
    """``--data digits | fashion-mnist | mnist | DIR``; ``--set dropout=off``, ``--set augment=on``."""

    def __init__(self, dropout: str = "on", augment: str = "off") -> None:
        self._dropout = switch("dropout", dropout)
        self._augment = switch("augment", augment)

    def model(self) -> nn.Module:
        return MnistNet(self._dropout)

    def present(self, source: str) -> bool:
        return is_present(source)

    def home(self, source: str) -> Path:
        return home(source)

    def obtain(self, source: str) -> None:
        find_or_fetch(source)

    def datasets(self, source: str) -> tuple[ResidentData, ResidentData]:
        train = load_images(source, train=True)
        test = load_images(source, train=False)
        return (
            ResidentData(*train, transform=shifted if self._augment else normalised),
            ResidentData(*test, transform=normalised),
        )

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.nll_loss(output, target)

    def correct(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output.argmax(dim=1) == target).sum()

    def tensor_parallel_plan(self, model: nn.Module) -> Mapping[str, Any]:
        """The dense layers, which hold 98 % of the parameters."""
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

        return {"dense1": ColwiseParallel(), "dense2": RowwiseParallel()}

    def pipeline_stages(self, model: nn.Module, n: int) -> list[nn.Module]:
        assert isinstance(model, MnistNet)
        if n > len(PARTS):
            raise RankupError(
                "too-many-stages",
                f"mnist-cnn has at most {len(PARTS)} stages, not {n}",
                hint=f"use at most {len(PARTS)} processes: --nproc-per-node {len(PARTS)}",
            )
        cuts = [len(PARTS) * i // n for i in range(n + 1)]
        return [Stage(model, first, end) for first, end in pairwise(cuts)]


def normalised(columns: Columns, random: SampleRandom) -> Columns:
    """uint8 (n, 28, 28) → float32 (n, 1, 28, 28) of about mean 0 and deviation 1; labels unchanged."""
    pixels, labels = columns
    scaled = pixels.to(torch.float32).mul_(1 / (255 * STD)).sub_(MEAN / STD)
    return scaled.unsqueeze(1), labels


def shifted(columns: Columns, random: SampleRandom) -> Columns:
    """Move each image by up to two pixels in both directions, then normalise. A sample always moves the same way."""
    pixels, labels = columns
    count, height, width = pixels.shape
    move = random.integers(0, 5, width=2)
    rows = move[:, :1] + torch.arange(height, device=pixels.device)
    cols = move[:, 1:] + torch.arange(width, device=pixels.device)
    padded = F.pad(pixels, (2, 2, 2, 2))
    each = torch.arange(count, device=pixels.device)[:, None, None]
    return normalised((padded[each, rows[:, :, None], cols[:, None, :]], labels), random)
