"""Buffers of models whose step is computed in virtual shards: each shard begins with the same (``any_world.py``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import nn

from rankup.errors import RankupError
from rankup.strategies.batch_plan import share
from rankup.strategies.ordered_sum import OrderedSum
from rankup.strategies.replicas import batch_statistics


class ShardBuffers:
    """Of one run; ``models`` may grow."""

    def __init__(self, order: OrderedSum, models: Sequence[nn.Module]) -> None:
        self._sum = order
        self._models = models
        self._buffers: dict[int, list[torch.Tensor]] = {}  # shard → buffers after its forward passes
        self._begun: list[torch.Tensor] = []  # buffers when the step began

    def begin(self) -> None:
        """A step begins."""
        self._buffers.clear()
        self._begun = [buffer.clone() for buffer in self._all()]

    def note(self, shard: int, *, counted: bool) -> None:
        """The forward passes of ``shard`` are done. A shard without samples (``counted`` is False) has weight 0: its
        dummy batch must not change the buffers. RankupError if they got another shape."""
        if [buffer.shape for buffer in self._all()] != [begun.shape for begun in self._begun]:
            raise RankupError(
                "not-any-world",
                'a forward pass gives buffers of the model another shape (an observer): exact="any-world" cannot take '
                "them back for the next virtual shard",
                hint="one forward pass of the same samples on all ranks before run.prepare; or leave exact= out",
                exit_code=1,
            )
        source = self._all() if counted else self._begun
        self._buffers[shard] = [buffer.clone() for buffer in source]

    def reset(self) -> None:
        """Buffers become what they were when the step began."""
        with torch.no_grad():
            for buffer, begun in zip(self._all(), self._begun, strict=True):
                buffer.copy_(begun)

    def unite(self, total: int) -> None:
        """Batch statistics become the mean over the samples of the step; other buffers those of the first shard."""
        buffers = list(self._all())
        if not buffers:
            return
        statistics = (found for model in self._models for found in batch_statistics(model))
        averaged = {id(buffer) for buffer, is_mean in statistics if is_mean}
        with torch.no_grad():
            for index, buffer in enumerate(buffers):
                pieces = {shard: held[index] for shard, held in self._buffers.items()}
                if id(buffer) in averaged:
                    weighed = {shard: piece * self._weight(shard, total) for shard, piece in pieces.items()}
                    buffer.copy_(self._sum.of(weighed))
                else:
                    buffer.copy_(next(self._sum.gathered(pieces)))
        self._buffers.clear()

    def _weight(self, shard: int, total: int) -> float:
        """What part of the step's samples it holds."""
        start, stop = share(total, shard, self._sum.shards)
        return (stop - start) / total

    def _all(self) -> Iterator[torch.Tensor]:
        for model in self._models:
            yield from model.buffers()
