"""A small convolutional network with BatchNorm, and one loop that trains it on a GPU or on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import rankup

SAMPLES, BATCH = 40, 16  # steps of 16, 16 and 8
GPU = "cuda"


class Net(nn.Module):
    """(n, 3, 16, 16) → (n, 10)."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.dropout = nn.Dropout(dropout)
        self.classes = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.conv1(x)))
        x = F.relu(self.conv2(x)).mean(dim=(2, 3))
        scores: torch.Tensor = self.classes(self.dropout(x))
        return scores


def images() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    labels = torch.arange(SAMPLES) % 10
    x = torch.randn(SAMPLES, 3, 16, 16, generator=generator) + labels[:, None, None, None] / 5
    return x, labels


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01, fused=True)


def trained(
    precision: str = "fp32",
    device: str = GPU,
    *,
    resident: bool = True,
    epochs: int = 2,
    optimizer: Callable[[Any], torch.optim.Optimizer] = adam,
    options: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The loss of each step, the weights in the end, and the kind of device that the batches were on."""
    run = rankup.init(seed=3, precision=precision, device=device)
    data = rankup.ResidentData(*images()) if resident else TensorDataset(*images())
    model, opt, feed = run.prepare(Net(), optimizer, data, global_batch=BATCH, **(options or {}))
    losses, places = [], set()
    for x, y in run.steps(feed, epochs=epochs):
        loss, _ = run.strategy.forward_backward(model, F.cross_entropy, x, y)
        run.step(opt)
        losses.append(loss.item())
        places.add(x.device.type)
    return {
        "losses": losses,
        "weights": {name: tensor.cpu() for name, tensor in run._context.models[0].state_dict().items()},
        "places": places,
    }


def largest_difference(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    assert a.keys() == b.keys()
    return max((a[name].double() - b[name].double()).abs().max().item() for name in a)
