"""``resnet50-mnist``: a network that is too large for its task, for learning about distributed training.

ResNet-50, 23.5 million parameters, on grey images of 28×28: ranks exchange gradients of 94 MB per step, and the global
batch is large. ``--set model=torchvision.models:resnet50`` (or timm's) trains that model instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from rankup.core.registry import load
from rankup.errors import RankupError
from rankup.runtime.data.resident import ResidentData
from rankup.workloads.data import find_or_fetch, is_present, load_images
from rankup.workloads.data.images import CLASSES
from rankup.workloads.data.places import home
from rankup.workloads.mnist_cnn import normalised
from rankup.workloads.resnet import ResNet50


class Resnet50Mnist:
    """``--data digits | fashion-mnist | mnist | DIR``; ``--set model=MODULE:FUNCTION``."""

    unit = "images"

    def __init__(self, model: str = "") -> None:
        self._model = model

    def defaults(self) -> Mapping[str, Any]:
        return {
            "global_batch": 512,
            "optimizer": "sgd",
            "lr": 0.1,
            "momentum": 0.9,
            "weight_decay": 1e-4,
            "gamma": 0.8,
            "epochs": 10,
        }

    def model(self) -> nn.Module:
        return borrowed(self._model) if self._model else ResNet50(channels=1, classes=CLASSES)

    def present(self, source: str) -> bool:
        return is_present(source)

    def home(self, source: str) -> Path:
        return home(source)

    def obtain(self, source: str) -> None:
        find_or_fetch(source)

    def datasets(self, source: str) -> tuple[ResidentData, ResidentData]:
        return (
            ResidentData(*load_images(source, train=True), transform=normalised),
            ResidentData(*load_images(source, train=False), transform=normalised),
        )

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output, target)

    def correct(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output.argmax(dim=1) == target).sum()


class InColour(nn.Module):
    """A network for colour images with grey input: (n, 1, h, w) → the output of ``network`` for (n, 3, h, w)."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.network(x.expand(-1, 3, -1, -1))
        return output


def borrowed(target: str) -> nn.Module:
    """The model that ``module:function`` returns for ``num_classes``, like the functions of torchvision and timm."""
    if ":" not in target:
        raise RankupError(
            "bad-setting", f"invalid --set model={target}", hint="use --set model=MODULE:FUNCTION"
        )
    try:
        made = load(target)(num_classes=CLASSES)  # type: ignore[operator]
    except (ImportError, AttributeError, TypeError) as error:
        raise RankupError(
            "model-not-found",
            f"--set model={target}: cannot import it: {error}",
            hint="use a function of an installed package that takes num_classes: torchvision.models:resnet50",
        ) from error
    if not isinstance(made, nn.Module):
        raise RankupError(
            "model-not-found", f"{target} returned a {type(made).__name__}, not a torch.nn.Module"
        )
    first = next((module for module in made.modules() if isinstance(module, nn.Conv2d)), None)
    return InColour(made) if first is not None and first.in_channels == 3 else made
