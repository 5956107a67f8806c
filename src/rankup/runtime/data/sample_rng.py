"""Fetching samples of a ``Dataset`` with random numbers that depend on the sample alone.

A data set that draws from torch's, Python's or NumPy's global generator (random crops and flips) would give other
images with another number of ranks or workers, and after a resume. So would one that draws from a generator in one of
its attributes, or in a variable of its module. So before each sample these generators are seeded from (seed, epoch,
sample); what ``collate_fn`` draws (mixup, masking) follows from the last sample. That costs 10 to 30 µs a sample. A
data set that draws nothing should not pay: unless ``sample_rng`` is given, each process finds out at its first batch
whether anything was drawn, or a generator made. If so, it fetches this batch again. A data set that draws nothing then
keeps what it has drawn (a cache of augmented samples): that depends on the process and the epoch in which a sample was
first fetched, and a resume does not have it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import Dataset, default_collate, get_worker_info

from rankup.core.whole_lines import say
from rankup.errors import RankupError
from rankup.runtime.data.generators import (
    held_generators,
    reseed,
    reseed_own,
    restore,
    same,
    set_state,
    state_of,
    states,
)
from rankup.runtime.seed import derive


class KeyedFetch(Dataset[Any]):
    """``self[epoch, samples, keys]`` is the collated batch of these samples, whose random numbers follow from ``keys``
    (the samples' numbers, mostly). Runs in the loader's workers."""

    def __init__(
        self,
        dataset: Dataset[Any],
        collate: Callable[[list[Any]], Any],
        seed: int,
        sample_rng: bool | None,
        *,
        reseed_held: bool = True,
        warns: bool = False,
    ) -> None:
        """``reseed_held``: whether to seed the generators that the data set holds or reads as well. ``warns``: on the
        rank that does."""
        self.dataset = dataset
        self.collate = collate
        self._seed = seed
        self._keyed = sample_rng
        self._reseed_held = reseed_held
        self._warns = warns
        self._suspected = False  # the first batch drew nothing when it was fetched again
        self._held: list[Any] = []  # in this process: a worker_init_fn may replace them
        self._batches = 0
        self._batched = callable(getattr(dataset, "__getitems__", None))

    def __getitem__(self, request: tuple[int, list[int], list[int]]) -> Any:
        epoch, samples, keys = request
        if self._keyed is False:
            return self.collate(self._fetch(samples))
        # In the rank's own process the generators belong to the model (dropout): restore them afterwards.
        self._batches += 1
        if self._batches == 1:
            self._look()
        before, own = states(), [(each, state_of(each)) for each in self._held]
        first = False  # whether this batch is fetched twice
        try:
            if self._keyed is None:
                fetched = self._fetch(samples)
                first = not same(before, states())
                batch = self.collate(fetched)
                drawn = any(state_of(each) != state for each, state in own)
                own += (made := self._look())
                self._keyed = drawn or bool(made) or not same(before, states())
                if not self._keyed:
                    return batch
            batch = self._seeded(epoch, samples, keys, first)
            # Those that a data set makes when it fetches a sample; not in each batch, since a look takes milliseconds.
            if self._reseed_held and self._batches.bit_count() == 1 and (made := self._look()):
                own += made
                batch = self._seeded(epoch, samples, keys, False)
                if (
                    self._batches > 1 and not self._look()
                ):  # one that each sample makes anew needs no seed of ours
                    self._warn(
                        "makes a random generator when a later sample than the first ones is fetched: what was drawn "
                        "from it until now depends on the process, so a resume, other loader workers or another number "
                        "of processes give other samples. Make it in __init__"
                    )
            return batch
        finally:
            if get_worker_info() is None:
                restore(before)
                for each, state in own:
                    set_state(each, state)

    def _look(self) -> list[tuple[Any, Any]]:
        """The generators that are held by now and were not before, with their states."""
        known = {id(each) for each in self._held}
        made = [each for each in held_generators((self.dataset, self.collate)) if id(each) not in known]
        self._held += made
        return [(each, state_of(each)) for each in made]

    def _seeded(self, epoch: int, samples: list[int], keys: list[int], first: bool) -> Any:
        """The batch with the random numbers of its samples. ``first``: it was fetched without them, and has drawn."""
        values, drew = [], False
        for sample, key in zip(samples, keys, strict=True):
            reseed(number := derive(self._seed, "sample", epoch, key))
            for each in self._held if self._reseed_held else ():
                reseed_own(each, number)
            seeded = states() if first or self._suspected else None
            values += self._sample(sample)
            drew = drew or (seeded is not None and not same(seeded, states()))
        if self._suspected and drew:  # other samples: so it was not one draw for all, such as a split
            self._warn(
                "draws random numbers when a sample is fetched for the first time, and keeps what it made of them: "
                "that depends on the process and the epoch of this first time, so a resume, other loader workers or "
                "another number of processes give other samples. Draw in __init__, with a seed, or from "
                "torch.Generator().manual_seed(index)"
            )
        self._suspected = first and not drew
        return self.collate(values)  # goes on from the last sample's seed

    def _warn(self, what: str) -> None:
        info = get_worker_info()
        if self._warns and (info is None or info.id == 0):
            say(f"warning: {type(self.dataset).__name__} {what}")

    def _sample(self, sample: int) -> list[Any]:
        fetched = self._fetch([sample])
        if not isinstance(fetched, list):
            raise RankupError(
                "whole-batches",
                f"{type(self.dataset).__name__}.__getitems__ gives whole batches and draws random numbers: they would "
                "depend on the number of ranks",
                hint="return a list with one sample for each index, or draw in collate_fn; sample_rng=False if the "
                "numbers do not matter",
                exit_code=1,
            )
        return fetched

    def _fetch(self, samples: list[int]) -> Any:
        """A list of samples; or whatever a data set gives that hands out whole batches, for a ``collate_fn`` that
        expects it."""
        try:
            if not self._batched:
                return [self.dataset[sample] for sample in samples]
            fetched = self.dataset.__getitems__(samples)  # type: ignore[attr-defined]
        except StopIteration as error:  # the loop over the loader would take it for the end of the epoch
            raise RankupError(
                "sample-missing",
                f"{type(self.dataset).__name__} raised StopIteration for one of the samples {samples}",
                hint="__getitem__ must give a sample for each index below len(dataset)",
                exit_code=1,
            ) from error
        whole = self.collate is not default_collate and not isinstance(fetched, list)
        if not whole and len(fetched) != len(samples):
            raise RankupError(
                "sample-missing",
                f"{type(self.dataset).__name__}.__getitems__ gave {len(fetched)} samples for {len(samples)} indices",
                hint="it must give one sample for each index",
                exit_code=1,
            )
        return fetched
