"""``DatasetFeed``: any map-style ``Dataset`` through torch's DataLoader, in the sharding's order."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import groupby
from typing import Any

import torch
from torch.utils.data import Dataset, Sampler, default_collate

from rankup.errors import RankupError
from rankup.runtime.data.batches import LONG, PreparedData, cut, cut_of, steps_of
from rankup.runtime.data.loader_options import Loader, loader_options
from rankup.runtime.data.order import StepPlan
from rankup.runtime.data.portions import NOTHING, Batch, Position, Ready
from rankup.runtime.data.sample_rng import KeyedFetch
from rankup.runtime.data.sharding import Sharding
from rankup.runtime.loop.precision import Precision
from rankup.runtime.pytree import map_tensors
from rankup.runtime.seed import derive

_ROWS = 2**14  # of an order, that are computed at once


class _Order(Sampler[tuple[int, list[int], list[int]]]):
    """Gives (epoch, sample numbers, keys of their random numbers) to the loader's workers: a persistent worker's copy
    of the data set does not know the epoch."""

    def __init__(self, sharding: Sharding, parts: int, fill: bool) -> None:
        self.sharding = sharding
        self._parts = parts
        self._fill = fill
        self.epoch = 0
        self.start = 0
        self.plan: StepPlan | None = None

    def __iter__(self) -> Iterator[tuple[int, list[int], list[int]]]:
        plan = self.plan
        assert plan is not None
        epoch, same = self.epoch, plan.keys is plan.order
        steps = max(1, _ROWS * self.sharding.world_size // plan.total(0))
        for pieces in cut(self.sharding, plan, self.start, self._parts, fill=self._fill, steps=steps):
            numbers = plan.order.rows(pieces.spans).tolist()
            keys = numbers if same else plan.keys.rows(pieces.spans).tolist()
            at = 0
            for size in pieces.sizes:
                end = at + size
                mine = numbers[at:end]
                yield epoch, mine, mine if same else keys[at:end]
                at = end


class DatasetFeed(PreparedData):
    """Any map-style data set through a DataLoader with rankup's sampler, batches and generator."""

    def __init__(
        self,
        dataset: Dataset[Any],
        sharding: Sharding,
        device: torch.device,
        precision: Precision,
        *,
        parts: int = 1,
        fill: bool = True,
        sample_rng: bool | None = None,
        loader: dict[str, Any] | None = None,
    ) -> None:
        self.position = Position()
        options = loader_options(loader or {}, device)
        collate = options.pop("collate_fn", None) or default_collate
        self.sharding = sharding
        self._parts = parts
        self._fill = fill
        self._move = mover(device, precision)
        self._order = _Order(sharding, parts, fill)
        # iter(DataLoader) always draws from a generator: this one, and not the model's.
        self._generator = torch.Generator()
        self.dataset = dataset
        fetch = KeyedFetch(dataset, collate, sharding.seed, sample_rng, warns=sharding.rank == 0)
        self._fetch = fetch.__getitem__
        self._loader = Loader(
            fetch,
            batch_size=None,
            sampler=self._order,
            collate_fn=_as_is,
            generator=self._generator,
            **options,
        )
        self._loader.trains = fill

    @property
    def steps(self) -> int:
        return steps_of(self.sharding, self.position)

    @property
    def cut(self) -> dict[str, int | None]:
        return cut_of(self.sharding, self._parts)

    def batches(self, epoch: int, start: int) -> Generator[Batch, None, None]:
        plan = self.sharding.plan(epoch)
        self._order.epoch, self._order.start, self._order.plan = epoch, start, plan
        self._generator.manual_seed(derive(self.sharding.seed, "loader", epoch, self.sharding.rank))
        # Without workers and pinned memory, a loader would only call this.
        plain = not self._loader.num_workers and not self._loader.pin_memory
        loaded = map(self._fetch, self._order) if plain else iter(self._loader)
        try:
            steps = max(1, LONG // self._parts)
            for pieces in cut(self.sharding, plan, start, self._parts, fill=self._fill, steps=steps):
                values = map(self._checked, loaded, pieces.sizes)
                for counts, alike in groupby(pieces.counts):
                    self.ready = ready = Ready(values, len([*alike]))
                    while ready.left:
                        yield Batch(ready.next(), *counts)
        finally:
            self.ready = NOTHING
            if isinstance(loaded, Generator):  # a portion may hold it, and workers end with it
                loaded.close()

    def _checked(self, value: Any, samples: int) -> Any:
        _check_rows(value, samples)
        return value if self._move is None else self._move(value)


def _check_rows(value: Any, samples: int) -> None:
    """An error if a batch has lost samples, e.g. by a ``collate_fn`` that drops bad ones: each rank's mean would be
    weighted by samples that are not in it. Only if all tensors of the batch have the same number of rows."""
    if (
        type(value) in (list, tuple)
        and value
        and isinstance(value[0], torch.Tensor)
        and samples in value[0].shape
    ):
        return  # nearly every batch
    rows: set[int] = set()
    others = False

    def look(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal others
        others |= samples in tensor.shape
        rows.update(tensor.shape[:1])
        return tensor

    map_tensors(look, value)
    if not others and len(rows) == 1 and (held := rows.pop()) < samples:
        raise RankupError(
            "samples-dropped",
            f"a batch of {samples} samples has {held} rows after collate_fn",
            hint="leave bad samples out of the data set (torch.utils.data.Subset), or keep their rows and mask them in "
            "the loss: run.backward(loss, count=…). If collate_fn joins samples (sequence packing), return one more "
            "tensor with a value for each sample, such as their lengths, and give run.backward the count",
            exit_code=1,
        )


def mover(device: torch.device, precision: Precision) -> Callable[[Any], Any] | None:
    """A function that moves a batch of any nesting to the device and dtype; None if there is nothing to do."""
    if device.type == "cpu" and precision.parameters is None:
        return None

    def tensor_there(tensor: torch.Tensor) -> torch.Tensor:
        return precision.cast(tensor.to(device, non_blocking=True))

    def thing_there(thing: Any) -> Any:
        """Batches of libraries that move themselves, such as a batch of graphs."""
        return thing.to(device) if callable(getattr(thing, "to", None)) else thing

    return lambda value: map_tensors(tensor_there, value, thing_there)


def _as_is(value: Any) -> Any:
    return value
