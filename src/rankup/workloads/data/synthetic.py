"""Stand-in pictures for machines without the real ones: the same sizes and classes, learnable, and nothing more.

A class is a coarse pattern of coloured blocks, an image its class's pattern under noise. Whole numbers from a seeded
generator: the same pixels on every machine. What a network reaches on them says nothing about the real data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

SYNTHETIC = "synthetic"
_BLOCK = 8  # pixels
_NOISE = 96  # of 256 grey levels


def synthetic_images(count: int, classes: int, *, train: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Images uint8 (count, 3, 32, 32), labels int64 (count,) in 0..classes-1, as many of each class as can be."""
    import torch

    patterns = torch.Generator().manual_seed(100)
    blocks = torch.randint(0, 256 - _NOISE, (classes, 3, 32 // _BLOCK, 32 // _BLOCK), generator=patterns)
    pattern = blocks.repeat_interleave(_BLOCK, 2).repeat_interleave(_BLOCK, 3).to(torch.uint8)
    labels = torch.arange(count) % classes
    draws = torch.Generator().manual_seed(101 if train else 102)
    noise = torch.randint(0, _NOISE, (count, 3, 32, 32), generator=draws, dtype=torch.uint8)
    return noise.add_(pattern[labels]), labels
