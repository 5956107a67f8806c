"""Sums over virtual shards in the shards' order: the same bits on any number of processes (``any_world.py``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch import nn

from rankup.strategies.batch_plan import share

# Elements that are gathered at once: all shards of a large model need not be in memory together.
BUCKET = 8 * 1024 * 1024

Gradients = dict[int, torch.Tensor]  # id of a parameter → its gradient


class OrderedSum:
    """``own``: the shards that this rank computes, of ``shards`` over ``world_size`` ranks."""

    def __init__(self, shards: int, rank: int, world_size: int) -> None:
        owned = [range(*share(shards, other, world_size)) for other in range(world_size)]
        self.shards = shards
        self.ranks = world_size
        self.own = owned[rank]
        self._counts = [len(each) for each in owned]

    def of(self, pieces: dict[int, torch.Tensor]) -> torch.Tensor:
        """The sum of all shards' tensors in the shards' order: the same bits on every rank."""
        gathered = self.gathered(pieces)
        total = next(gathered).clone()
        for piece in gathered:
            total += piece
        return total

    def gathered(self, pieces: dict[int, torch.Tensor]) -> Iterator[torch.Tensor]:
        """All shards' tensors in order, from ``pieces``, which are this rank's by shard."""
        if len(self._counts) == 1:
            yield from (pieces[shard] for shard in self.own)
            return
        one = next(iter(pieces.values()))
        # Some ranks have one shard more than others, but all must send the same amount.
        mine = one.new_zeros(max(self._counts), *one.shape)
        for row, shard in enumerate(self.own):
            mine[row] = pieces[shard]
        ranks = [torch.empty_like(mine) for _ in self._counts]
        dist.all_gather(ranks, mine)
        for rows, count in zip(ranks, self._counts, strict=True):
            yield from rows[:count]


def buckets(parameters: Iterable[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """In order, of one dtype and device each, and of ``BUCKET`` elements or one parameter."""
    bucket: list[nn.Parameter] = []
    for parameter in parameters:
        alike = not bucket or (parameter.dtype, parameter.device) == (bucket[0].dtype, bucket[0].device)
        if bucket and (not alike or sum(p.numel() for p in bucket) + parameter.numel() > BUCKET):
            yield bucket
            bucket = []
        bucket.append(parameter)
    if bucket:
        yield bucket


def split_like(bucket: list[nn.Parameter], flat: torch.Tensor) -> list[torch.Tensor]:
    """``flat`` in pieces of the parameters' shapes; the rest comes last."""
    sizes = [parameter.numel() for parameter in bucket]
    *pieces, rest = torch.split(flat, [*sizes, len(flat) - sum(sizes)])
    return [piece.view(parameter.shape) for piece, parameter in zip(pieces, bucket, strict=True)] + [rest]


def flatten(bucket: list[nn.Parameter], held: Gradients | None) -> torch.Tensor:
    """A shard's gradients one after another, then for each parameter whether it has one."""
    found = [None if held is None else held.get(id(parameter)) for parameter in bucket]
    pieces = [
        (torch.zeros_like(parameter) if gradient is None else gradient).reshape(-1)
        for parameter, gradient in zip(bucket, found, strict=True)
    ]
    used = [0.0 if gradient is None else 1.0 for gradient in found]
    return torch.cat([*pieces, torch.tensor(used, dtype=pieces[0].dtype, device=pieces[0].device)])
