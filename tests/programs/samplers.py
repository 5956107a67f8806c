"""Samplers and batch samplers of one's own."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils.data import BatchSampler, WeightedRandomSampler

from programs.data_sets import Rows, fit, train
from programs.program import How, Program, Result
from rankup.runtime.seed import derive


def sizes() -> list[int]:
    """A length for each of 20 samples, to sort by."""
    return [(7 * number) % 20 for number in range(20)]


class ByLength:
    """A batch sampler: batches of samples of like length, shuffled with the epoch."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(range(0, 20, self.batch))

    def __iter__(self) -> Iterator[list[int]]:
        ranked = sorted(range(20), key=sizes().__getitem__)
        made = [ranked[start : start + self.batch] for start in range(0, 20, self.batch)]
        for number in torch.randperm(len(made), generator=torch.Generator().manual_seed(self.epoch)).tolist():
            yield made[number]


class LengthBatches(Program):
    """batch_sampler=: batches of samples of like length, reshuffled in each epoch by set_epoch."""

    def plain(self) -> Result:
        def order(epoch: int) -> list[list[int]]:
            sampler = ByLength(self.batch)
            sampler.set_epoch(epoch)
            return list(sampler)

        return fit(self, order)

    def with_rankup(self, how: How) -> Result:
        return train(self, how, Rows(), batch_sampler=ByLength(self.batch))


class Fixed:
    """A sampler of a fixed order: hard examples first."""

    def __len__(self) -> int:
        return 20

    def __iter__(self) -> Iterator[int]:
        yield from sorted(range(20), key=sizes().__getitem__)


class OwnSampler(Program):
    """sampler=: a curriculum, easy samples first."""

    def plain(self) -> Result:
        return fit(self, lambda epoch: torch.split(torch.tensor(list(Fixed())), self.batch))

    def with_rankup(self, how: How) -> Result:
        return train(self, how, Rows(), global_batch=self.batch, sampler=Fixed())


class Unsettled(WeightedRandomSampler):
    """A weighted sampler with a generator of its own, seeded."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)
        super().__init__([1.0 + number % 3 for number in range(20)], 20, generator=generator)


class WeightedSampler(Program):
    """sampler=WeightedRandomSampler(…, generator=…): oversampled rare samples."""

    def plain(self) -> Result:
        sampler = Unsettled()

        def order(epoch: int) -> tuple[torch.Tensor, ...]:
            sampler.generator.manual_seed(
                derive(0, "sampler", epoch)
            )  # as the order of a shuffled data set is data
            return torch.split(torch.tensor(list(sampler)), self.batch)

        return fit(self, order)

    def with_rankup(self, how: How) -> Result:
        return train(self, how, Rows(), global_batch=self.batch, sampler=Unsettled())


class TorchBatchSampler(Program):
    """batch_sampler=torch's BatchSampler over a sampler of one's own."""

    def plain(self) -> Result:
        return fit(self, lambda epoch: list(BatchSampler(Fixed(), self.batch, drop_last=True)))

    def with_rankup(self, how: How) -> Result:
        return train(self, how, Rows(), batch_sampler=BatchSampler(Fixed(), self.batch, drop_last=True))
