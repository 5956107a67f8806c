"""Which feed serves which data set."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from rankup.errors import RankupError
from rankup.runtime.data.batches import DataFeed, most_steps
from rankup.runtime.data.loader_options import check_names
from rankup.runtime.data.loaders import DatasetFeed
from rankup.runtime.data.resident import ResidentData, ResidentDataFeed
from rankup.runtime.data.sharding import Sharding
from rankup.runtime.distributed.control import Control
from rankup.runtime.loop.precision import Precision
from rankup.strategies.batch_plan import BatchPlan

Data = Dataset[Any] | ResidentData


@dataclass(frozen=True)
class RankContext:
    """What a feed needs to know about its rank."""

    plan: BatchPlan
    seed: int
    device: torch.device
    precision: Precision
    control: Control | None

    @property
    def rank(self) -> int:
        """Which of ``world_size`` shares of each batch is this rank's."""
        return self.plan.replica

    @property
    def world_size(self) -> int:
        return self.plan.replicas


@dataclass(frozen=True)
class LoaderOptions:
    """``parts``: micro-batches per step; ``fill``: dummy batches for ranks without samples (training); the others as in
    ``Run.prepare``."""

    shuffle: bool = True
    parts: int = 1
    fill: bool = True
    sample_rng: bool | None = None
    sharded: bool | str | None = None
    drop_last: bool | None = None
    sampler: Iterable[Any] | None = None
    batch_sampler: Iterable[Any] | None = None
    keywords: tuple[str, ...] = ()  # of the call, to find typing errors


def make_loader(
    dataset: Data, here: RankContext, global_batch: int | None, options: LoaderOptions, loader: dict[str, Any]
) -> DataFeed:
    """The feed of this rank; ``loader`` are DataLoader arguments. Raises RankupError for what cannot be fed."""
    if isinstance(dataset, DataLoader):
        raise RankupError(
            "loader-given",
            "prepare and batches take the data set, not a DataLoader: they cut the batches for each rank",
            hint="pass loader.dataset, and the loader's arguments as keywords",
        )
    check_names(loader, options.keywords)
    _check_order(dataset, global_batch, options)
    if global_batch is not None and global_batch < here.world_size:
        raise RankupError(
            "global-batch-too-small",
            f"a global batch of {global_batch} leaves nothing for some of {here.world_size} processes",
            hint=f"global_batch is the batch of all processes together: at least {here.world_size}",
        )
    parts, fill = options.parts, options.fill
    if isinstance(dataset, IterableDataset):
        from rankup.runtime.data.stream import StreamFeed

        assert global_batch is not None
        return StreamFeed(
            dataset,
            global_batch,
            here.rank,
            here.world_size,
            here.seed,
            here.device,
            here.precision,
            here.control,
            parts=parts,
            fill=fill,
            sharded=options.sharded,
            loader=loader,
        )
    mapped = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    if not mapped and not isinstance(dataset, ResidentData):
        raise RankupError(
            "not-a-dataset",
            f"{type(dataset).__name__} is neither a map-style data set (__len__, __getitem__) nor an IterableDataset",
            hint="a generator or an iterator becomes a data set by a class with __iter__ that inherits from "
            "torch.utils.data.IterableDataset",
        )
    length = len(dataset)  # type: ignore[arg-type]  # it has one
    size, drop_last = global_batch or 0, bool(options.drop_last)
    sampled = None
    sampler = options.sampler if options.sampler is not None else options.batch_sampler
    if sampler is not None and length:
        from rankup.runtime.data.samplers import SampledOrder

        batches = options.batch_sampler is not None
        sampled = SampledOrder(sampler, length, size, here.seed, batches=batches, drop_last=drop_last)
        sampled.check(here.control)
    sharding = Sharding(
        length,
        size,
        here.rank,
        here.world_size,
        here.seed,
        options.shuffle and sampled is None,
        here.plan.parts,
        drop_last,
        sampled,
        most_steps(),
    )
    if isinstance(dataset, ResidentData):
        if loader:
            raise RankupError(
                "loader-option-taken",
                f"{', '.join(loader)}: resident data needs no loader",
                hint="leave it out",
            )
        return ResidentDataFeed(dataset, sharding, here.device, here.precision, parts=parts, fill=fill)
    return DatasetFeed(
        dataset,
        sharding,
        here.device,
        here.precision,
        parts=parts,
        fill=fill,
        sample_rng=options.sample_rng,
        loader=loader,
    )


def _check_order(dataset: Data, global_batch: int | None, options: LoaderOptions) -> None:
    """An error for orders that contradict each other."""
    if options.batch_sampler is not None:
        for name, given in (
            ("global_batch", global_batch is not None),
            ("sampler", options.sampler is not None),
            ("drop_last", options.drop_last),
        ):
            if given:
                raise RankupError(
                    "two-orders",
                    f"batch_sampler= and {name}= contradict each other: a batch of a batch_sampler is a global batch",
                    hint=f"leave {name}= out",
                )
    sampled = options.sampler is not None or options.batch_sampler is not None
    if isinstance(dataset, IterableDataset) and (sampled or options.drop_last):
        raise RankupError(
            "stream-order",
            "sampler=, batch_sampler= and drop_last=True need a map-style data set, whose length is known",
            hint="a stream gives its samples in its own order, and its last batches are short",
        )
