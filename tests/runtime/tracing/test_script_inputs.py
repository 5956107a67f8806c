"""The sampler of samples is found behind those that wrap it, and nothing of a stream's loader is asked for a length."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler

from rankup.runtime.tracing.script_inputs import _innermost


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from torch.arange(4)


def test_a_stream_s_loader_has_a_sampler_without_a_length():
    for loader in (DataLoader(Stream(), batch_size=2), DataLoader(Stream(), batch_size=None)):
        assert type(_innermost(loader)).__name__ == "_InfiniteConstantSampler"


def test_a_sampler_is_found_behind_batches_of_batches():
    data = torch.arange(8)
    samples = RandomSampler(data)
    wrapped = BatchSampler(BatchSampler(samples, 2, drop_last=False), 2, drop_last=False)  # type: ignore[arg-type]
    assert _innermost(DataLoader(data, batch_sampler=wrapped)) is samples  # type: ignore[arg-type]


def test_a_sampler_that_names_itself_ends_the_search():
    data = torch.arange(8)
    samples = RandomSampler(data)
    samples.sampler = samples  # type: ignore[attr-defined]
    assert _innermost(DataLoader(data, sampler=samples)) is samples  # type: ignore[arg-type]
