"""Synthetic images for machines without the real ones, with the same sizes and classes.

Each class is a coarse pattern of coloured blocks; an image is its class's pattern with noise. The pixels are whole
numbers from a seeded generator, so they are the same on every machine. Results on them say nothing about the real data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

SYNTHETIC = "synthetic"
_BLOCK = 8  # pixels
_NOISE = 96  # of 256 grey levels


def synthetic_images(count: int, classes: int, *, train: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Images uint8 (count, 3, 32, 32), labels int64 (count,) in 0..classes-1; the classes have equally many images."""
    import torch

    patterns = torch.Generator().manual_seed(100)
    blocks = torch.randint(0, 256 - _NOISE, (classes, 3, 32 // _BLOCK, 32 // _BLOCK), generator=patterns)
    pattern = blocks.repeat_interleave(_BLOCK, 2).repeat_interleave(_BLOCK, 3).to(torch.uint8)
    labels = torch.arange(count) % classes
    draws = torch.Generator().manual_seed(101 if train else 102)
    noise = torch.randint(0, _NOISE, (count, 3, 32, 32), generator=draws, dtype=torch.uint8)
    return noise.add_(pattern[labels]), labels
