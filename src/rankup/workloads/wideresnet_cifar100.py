"""``wideresnet-cifar100``: WideResNet on CIFAR-100 by SGD with momentum; an example of training to a target accuracy.

rankup train wideresnet-cifar100 --target-accuracy 0.75 --patience 2 --precision bf16

The images stay uint8 on the device. Flips and shifted crops are made there, a batch at a time. Their random numbers
depend on the sample, so they are the same on any number of processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from rankup.errors import RankupError
from rankup.runtime.data.resident import Columns, ResidentData
from rankup.runtime.seed import SampleRandom
from rankup.workloads.data.catalog import CIFAR100_BINARY
from rankup.workloads.data.cifar import CLASSES, load_cifar100
from rankup.workloads.data.places import find_or_fetch, home, is_present
from rankup.workloads.data.synthetic import SYNTHETIC, synthetic_images
from rankup.workloads.settings import share, switch, whole
from rankup.workloads.wideresnet import WideResNet

# Mean and standard deviation of CIFAR-100's training pixels in [0, 1], for red, green and blue.
MEAN, STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
PAD = 4  # the largest shift of a crop in each direction, in pixels


class WideresnetCifar100:
    """``--data cifar100 | synthetic | DIR``; ``--set depth=28 width=10 dropout=0 augment=on images=50000``.

    ``images`` is the number of synthetic training images; for test there are a fifth as many.
    """

    unit = "images"

    def __init__(
        self,
        depth: str = "28",
        width: str = "10",
        dropout: str = "0",
        augment: str = "on",
        images: str = "50000",
    ) -> None:
        self._depth = whole("depth", depth, at_least=10)
        if (self._depth - 4) % 6:
            raise RankupError(
                "bad-setting",
                f"invalid --set depth={depth}",
                hint="depth must be 6k + 4, such as 10, 16 or 28",
            )
        self._width = whole("width", width)
        self._dropout = share("dropout", dropout)
        self._augment = switch("augment", augment)
        self._images = whole("images", images, at_least=5)

    def defaults(self) -> Mapping[str, Any]:
        return {
            "data": "cifar100",
            "global_batch": 128,
            "optimizer": "sgd",
            "lr": 0.1,
            "momentum": 0.9,
            "weight_decay": 5e-4,
            "gamma": 0.9,
            "epochs": 40,
        }

    def data_note(self, source: str) -> str:
        return "synthetic stand-in, not CIFAR-100" if source == SYNTHETIC else ""

    def model(self) -> nn.Module:
        return WideResNet(self._depth, self._width, CLASSES, self._dropout)

    def present(self, source: str) -> bool:
        return source == SYNTHETIC or is_present(source)

    def home(self, source: str) -> Path:
        return home(source)

    def obtain(self, source: str) -> None:
        find_or_fetch(source, CIFAR100_BINARY)

    def datasets(self, source: str) -> tuple[ResidentData, ResidentData]:
        if source == SYNTHETIC:
            train = synthetic_images(self._images, CLASSES, train=True)
            test = synthetic_images(self._images // 5, CLASSES, train=False)
        else:
            train = load_cifar100(source, train=True)
            test = load_cifar100(source, train=False)
        return (
            ResidentData(*train, transform=augmented if self._augment else normalised),
            ResidentData(*test, transform=normalised),
        )

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output, target)

    def correct(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output.argmax(dim=1) == target).sum()


def normalised(columns: Columns, random: SampleRandom) -> Columns:
    """uint8 (n, 3, 32, 32) → float32 of about mean 0 and deviation 1 per channel; labels unchanged."""
    pixels, labels = columns
    scale, shift = _scale_and_shift(pixels.device)
    return pixels.float().mul_(scale).sub_(shift), labels


@cache
def _scale_and_shift(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """(3, 1, 1) each. They are made once, because a copy to a GPU waits for all earlier work on it."""
    scale = torch.tensor([1 / (255 * std) for std in STD], device=device)
    shift = torch.tensor([mean / std for mean, std in zip(MEAN, STD, strict=True)], device=device)
    return scale[:, None, None], shift[:, None, None]


def augmented(columns: Columns, random: SampleRandom) -> Columns:
    """Mirror half of the images, move each by up to 4 pixels over a black border, then normalise."""
    pixels, labels = columns
    count, _, height, width = pixels.shape
    device = pixels.device
    move = random.integers(0, 2 * PAD + 1, width=2)
    mirror = random.uniform() < 0.5
    across = torch.arange(width, device=device)
    rows = move[:, :1] + torch.arange(height, device=device)
    cols = move[:, 1:] + torch.where(mirror, width - 1 - across, across)
    padded = F.pad(pixels, (PAD, PAD, PAD, PAD))
    each = torch.arange(count, device=device)[:, None, None]
    # One gather for crop and flip. Indexing around the channels puts them last: (n, h, w, 3).
    moved = padded[each, :, rows[:, :, None], cols[:, None, :]].permute(0, 3, 1, 2)
    return normalised((moved, labels), random)
