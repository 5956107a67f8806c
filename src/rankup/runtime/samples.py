"""Fetching samples of a ``Dataset`` with random numbers that depend on the sample alone.

A data set that draws from torch's, Python's or NumPy's global generator (random crops and flips) would give other
pictures with another number of ranks or workers, and after a resume. So before each sample these generators are
seeded from (seed, epoch, sample); what ``collate_fn`` draws (mixup, masking) follows from the last sample. That costs
10 to 30 µs a sample; who draws nothing should not pay, so each process looks once, at its first batch, whether anything
was drawn, unless ``sample_rng`` says yes or no.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import Dataset, get_worker_info

from rankup.runtime.seed import derive


class KeyedFetch(Dataset[Any]):
    """``self[epoch, samples]`` is the collated batch of these samples. Runs in the loader's workers."""

    def __init__(
        self, dataset: Dataset[Any], collate: Callable[[list[Any]], Any], seed: int, sample_rng: bool | None
    ) -> None:
        self._dataset = dataset
        self._collate = collate
        self._seed = seed
        self._keyed = sample_rng
        self._batched = callable(getattr(dataset, "__getitems__", None))

    def __getitem__(self, request: tuple[int, list[int]]) -> Any:
        epoch, samples = request
        if self._keyed is False:
            return self._collate(self._fetch(samples))
        # In the rank's own process the generators belong to the model (dropout): put them back afterwards.
        before = _states()
        try:
            if self._keyed is None:
                batch = self._collate(self._fetch(samples))
                self._keyed = not _same(before, _states())
                if not self._keyed:
                    return batch
            values = []
            for sample in samples:
                _seed(derive(self._seed, "sample", epoch, sample))
                values += self._fetch([sample])
            return self._collate(values)  # goes on from the last sample's seed
        finally:
            if get_worker_info() is None:
                _restore(before)

    def _fetch(self, samples: list[int]) -> list[Any]:
        if self._batched:
            fetched: list[Any] = self._dataset.__getitems__(samples)  # type: ignore[attr-defined]
            return fetched
        return [self._dataset[sample] for sample in samples]


def _seed(key: int) -> None:
    torch.default_generator.manual_seed(key)
    random.seed(key)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(key % 2**32)


_States = tuple[torch.Tensor, Any, Any]


def _states() -> _States:
    numpy = sys.modules.get("numpy")
    return torch.get_rng_state(), random.getstate(), numpy.random.get_state() if numpy else None


def _restore(states: _States) -> None:
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    if states[2] is not None:
        sys.modules["numpy"].random.set_state(states[2])


def _same(a: _States, b: _States) -> bool:
    if not torch.equal(a[0], b[0]) or a[1] != b[1]:
        return False
    if a[2] is None or b[2] is None:
        return a[2] is None and b[2] is None
    return bool((a[2][1] == b[2][1]).all()) and a[2][2:] == b[2][2:]
