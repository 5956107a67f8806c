"""Wide residual networks (Zagoruyko and Komodakis 2016) for images of 32×32: WRN-28-10 is ``WideResNet(28, 10)``.

Normalisation and ReLU come before each convolution. If the number of channels changes, the shortcut also uses the
output of a block's first normalisation and ReLU.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class WideBlock(nn.Module):
    """(n, channels, h, w) → (n, width, h / stride, w / stride)."""

    def __init__(self, channels: int, width: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.shortcut = nn.Conv2d(channels, width, 1, stride, bias=False) if channels != width else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        active = F.relu(self.bn1(x))
        kept: torch.Tensor = x if self.shortcut is None else self.shortcut(active)
        inner = self.dropout(F.relu(self.bn2(self.conv1(active))))
        return torch.add(kept, self.conv2(inner))


class WideResNet(nn.Module):
    """(n, 3, 32, 32) → logits (n, classes). ``depth`` is 6k + 4: three groups of k blocks of two convolutions."""

    def __init__(self, depth: int = 28, width: int = 10, classes: int = 100, dropout: float = 0.0) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 4, 6)
        if rest or blocks < 1:
            raise ValueError(f"depth {depth} is not 6k + 4")
        channels = (16, 16 * width, 32 * width, 64 * width)
        self.conv1 = nn.Conv2d(3, channels[0], 3, padding=1, bias=False)
        self.group1 = _group(channels[0], channels[1], blocks, 1, dropout)
        self.group2 = _group(channels[1], channels[2], blocks, 2, dropout)
        self.group3 = _group(channels[2], channels[3], blocks, 2, dropout)
        self.bn = nn.BatchNorm2d(channels[3])
        self.fc = nn.Linear(channels[3], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.fc.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.group3(self.group2(self.group1(self.conv1(x))))
        logits: torch.Tensor = self.fc(F.relu(self.bn(x)).mean((2, 3)))
        return logits


def _group(channels: int, width: int, blocks: int, stride: int, dropout: float) -> nn.Sequential:
    first = WideBlock(channels, width, stride, dropout)
    return nn.Sequential(first, *(WideBlock(width, width, 1, dropout) for _ in range(blocks - 1)))
