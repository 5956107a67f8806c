"""ResNet-50 (He et al. 2015) for images of any size and number of channels.

The usual variant 1.5: a bottleneck's stride is in its 3×3 convolution. Its last normalisation starts at zero, so every
block starts as the identity, which large batches need (Goyal et al. 2017). Parameters have the names of torchvision, so
weights can be exchanged.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

BLOCKS = (3, 4, 6, 3)
EXPANSION = 4


class Bottleneck(nn.Module):
    """(n, channels, h, w) → (n, 4 · width, h / stride, w / stride)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, EXPANSION * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(EXPANSION * width)
        self.downsample: nn.Module | None = None
        if stride > 1 or channels != EXPANSION * width:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, EXPANSION * width, 1, stride, bias=False),
                nn.BatchNorm2d(EXPANSION * width),
            )
        nn.init.zeros_(self.bn3.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return F.relu(self.bn3(self.conv3(x)) + shortcut)


class ResNet50(nn.Module):
    """(n, channels, h, w) → logits (n, classes)."""

    def __init__(self, channels: int = 3, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _stage(64, 64, BLOCKS[0], stride=1)
        self.layer2 = _stage(256, 128, BLOCKS[1], stride=2)
        self.layer3 = _stage(512, 256, BLOCKS[2], stride=2)
        self.layer4 = _stage(1024, 512, BLOCKS[3], stride=2)
        self.fc = nn.Linear(2048, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        features: torch.Tensor = self.fc(x.mean((2, 3)))
        return features


def _stage(channels: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    first = Bottleneck(channels, width, stride)
    return nn.Sequential(first, *(Bottleneck(EXPANSION * width, width, 1) for _ in range(blocks - 1)))
