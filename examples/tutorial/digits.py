"""Shared by the tutorial's scripts: 1,437 handwritten digits for training, 360 for test, and a small network."""

from __future__ import annotations

from torch import nn
from torch.utils.data import TensorDataset

from rankup.workloads.data import load_images  # the digits come with rankup: nothing is downloaded


def load(train: bool) -> TensorDataset:
    """Pixels float32 (N, 784) from 0 to 1, and labels int64 (N,)."""
    images, labels = load_images("digits", train=train)
    return TensorDataset(images.flatten(1) / 255, labels)


def network() -> nn.Module:
    """(n, 784) → scores (n, 10)."""
    return nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
