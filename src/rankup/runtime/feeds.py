"""Which feed serves which data set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, IterableDataset

from rankup.errors import RankupError
from rankup.runtime.data import ResidentData
from rankup.runtime.loaders import DatasetFeed, Feed, ResidentFeed
from rankup.runtime.precision import Precision
from rankup.runtime.shard import Sharding
from rankup.runtime.stream import StreamFeed

Data = Dataset[Any] | ResidentData


@dataclass(frozen=True)
class Here:
    """What a feed must know of its rank."""

    rank: int
    world_size: int
    seed: int
    device: torch.device
    precision: Precision
    control: dist.ProcessGroup | None
    shards: int = 0  # virtual ones (strategies/any_world.py)


@dataclass(frozen=True)
class FeedOptions:
    """``parts``: micro-batches per step; ``fill``: keep ranks without samples company (training); the others as in
    ``Run.prepare``."""

    shuffle: bool = True
    parts: int = 1
    fill: bool = True
    sample_rng: bool | None = None
    sharded: bool | str | None = None


def make_feed(
    dataset: Data, here: Here, global_batch: int, options: FeedOptions, loader: dict[str, Any]
) -> Feed:
    """The feed of this rank; ``loader`` are DataLoader arguments. Raises RankupError for what cannot be fed."""
    if isinstance(dataset, DataLoader):
        raise RankupError(
            "loader-given",
            "prepare and batches take the data set, not a DataLoader: they cut the batches for each rank",
            hint="pass loader.dataset, and the loader's arguments as keywords",
        )
    if global_batch < here.world_size:
        raise RankupError(
            "global-batch-too-small",
            f"a global batch of {global_batch} leaves nothing for some of {here.world_size} processes",
            hint=f"global_batch is the batch of all processes together: at least {here.world_size}",
        )
    parts, fill = options.parts, options.fill
    if isinstance(dataset, IterableDataset):
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
    length = len(dataset)  # type: ignore[arg-type]  # a map-style Dataset has a length
    sharding = Sharding(
        length, global_batch, here.rank, here.world_size, here.seed, options.shuffle, here.shards
    )
    if isinstance(dataset, ResidentData):
        if loader:
            raise RankupError(
                "loader-option-taken",
                f"{', '.join(loader)}: resident data needs no loader",
                hint="leave it out",
            )
        return ResidentFeed(dataset, sharding, here.device, here.precision, parts=parts, fill=fill)
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
