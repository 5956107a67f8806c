"""Fetching samples of a ``Dataset`` with random numbers that depend on the sample alone.

A data set that draws from torch's, Python's or NumPy's global generator (random crops and flips) would give other
pictures with another number of ranks or workers, and after a resume. So before each sample these generators are
seeded from (seed, epoch, sample); what ``collate_fn`` draws (mixup, masking) follows from the last sample. That costs
10 to 30 µs a sample; who draws nothing should not pay, so each process looks once, at its first batch, whether anything
was drawn, unless ``sample_rng`` says yes or no.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import Dataset, get_worker_info

from rankup.runtime.generators import reseed, restore, same, states
from rankup.runtime.seed import derive


class KeyedFetch(Dataset[Any]):
    """``self[epoch, samples, keys]`` is the collated batch of these samples, whose random numbers follow from ``keys``
    (the samples' numbers, mostly). Runs in the loader's workers."""

    def __init__(
        self, dataset: Dataset[Any], collate: Callable[[list[Any]], Any], seed: int, sample_rng: bool | None
    ) -> None:
        self._dataset = dataset
        self._collate = collate
        self._seed = seed
        self._keyed = sample_rng
        self._batched = callable(getattr(dataset, "__getitems__", None))

    def __getitem__(self, request: tuple[int, list[int], list[int]]) -> Any:
        epoch, samples, keys = request
        if self._keyed is False:
            return self._collate(self._fetch(samples))
        # In the rank's own process the generators belong to the model (dropout): put them back afterwards.
        before = states()
        try:
            if self._keyed is None:
                batch = self._collate(self._fetch(samples))
                self._keyed = not same(before, states())
                if not self._keyed:
                    return batch
            values = []
            for sample, key in zip(samples, keys, strict=True):
                reseed(derive(self._seed, "sample", epoch, key))
                values += self._fetch([sample])
            return self._collate(values)  # goes on from the last sample's seed
        finally:
            if get_worker_info() is None:
                restore(before)

    def _fetch(self, samples: list[int]) -> list[Any]:
        if self._batched:
            fetched: list[Any] = self._dataset.__getitems__(samples)  # type: ignore[attr-defined]
            return fetched
        return [self._dataset[sample] for sample in samples]
