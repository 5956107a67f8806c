"""Which samples, in which order, on which rank: pure functions of (seed, epoch, step, rank, world size).

One global order per epoch; global batch ``k`` is its ``k``-th slice; a rank's share is a contiguous part of that
slice. Nothing is padded and nothing dropped: the last global batch is short where nothing divides, shares differ by
one at most, and on a wide world a share may be empty.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rankup.core.share import share
from rankup.errors import RankupError
from rankup.runtime.seed import derive


@dataclass(frozen=True)
class Sharding:
    """How one data set is cut. ``length`` and ``global_batch`` in samples."""

    length: int
    global_batch: int
    rank: int
    world_size: int
    seed: int
    shuffle: bool
    shards: int = 0  # virtual ones, of which each rank has some: see strategies/any_world.py

    def __post_init__(self) -> None:
        if self.length == 0:
            raise RankupError("empty-dataset", "the data set holds no samples")

    @property
    def steps(self) -> int:
        """Steps per epoch; the short last one counts."""
        return -(-self.length // self.global_batch)

    def order(self, epoch: int) -> torch.Tensor:
        """Every sample once: int64 (length,), the same on every rank and for every world size."""
        if not self.shuffle:
            return torch.arange(self.length)
        generator = torch.Generator().manual_seed(derive(self.seed, "order", epoch))
        return torch.randperm(self.length, generator=generator)

    def total(self, step: int) -> int:
        """Samples in global batch ``step``."""
        return min(self.global_batch, self.length - step * self.global_batch)

    def parts(self, total: int, micro_batches: int) -> list[tuple[int, int, int]]:
        """(number, start, stop) of what this rank computes on at once, in a global batch of ``total`` samples: its
        micro-batches, or its virtual shards."""
        if self.shards:
            own = range(*share(self.shards, self.rank, self.world_size))
            return [(shard, *share(total, shard, self.shards)) for shard in own]
        low, high = share(total, self.rank, self.world_size)
        cuts = (share(high - low, part, micro_batches) for part in range(micro_batches))
        return [(part, low + start, low + stop) for part, (start, stop) in enumerate(cuts)]
