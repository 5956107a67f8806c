"""Streams of 48 numbered samples, each splitting and shuffling in a way that users and libraries do."""

from __future__ import annotations

import io
import os
import random
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import IterableDataset, get_worker_info

import rankup
from rankup.errors import RankupError
from rankup.runtime.data.stream import StreamFeed
from rankup.runtime.loop.precision import make_precision

LENGTH = 48
CPU = torch.device("cpu")


class Plain(IterableDataset):
    def __iter__(self):
        return map(torch.tensor, self.order())

    def order(self):
        return iter(range(LENGTH))


class GlobalShuffle(Plain):
    """With all three global generators, some of it while it is read."""

    def order(self):
        numbers = list(range(LENGTH))
        random.shuffle(numbers)
        numbers = [numbers[i] for i in torch.randperm(LENGTH).tolist()]
        numbers = np.random.permutation(numbers).tolist()
        buffer = numbers[:8]
        for number in numbers[8:]:
            at = random.randrange(8)
            yield buffer[at]
            buffer[at] = number
        yield from buffer


class SeedShuffle(Plain):
    """By the seed of torch's worker info."""

    def order(self):
        numbers = list(range(LENGTH))
        info = get_worker_info()
        random.Random(info.seed if info else 0).shuffle(numbers)
        return iter(numbers)


class OwnShuffle(Plain):
    """With a generator of its own, without a seed; the first ``still`` samples in order."""

    def __init__(self, still: int = 0) -> None:
        self.still = still

    def order(self):
        numbers = list(range(LENGTH))
        rest = numbers[self.still :]
        random.Random(os.urandom(8)).shuffle(rest)
        return iter(numbers[: self.still] + rest)


class Short(Plain):
    def order(self):
        return iter(range(7))


class ForgetsItsOrder(Plain):
    """Shuffles with a generator that goes on from pass to pass."""

    def __init__(self) -> None:
        self.random = random.Random(3)

    def order(self):
        numbers = list(range(LENGTH))
        self.random.shuffle(numbers)
        return iter(numbers)


class ShorterElsewhere(Plain):
    def order(self):
        return iter(range(LENGTH - int(os.environ["RANK"])))


class Once(IterableDataset):
    """Its own iterator, as an open file or a queue is."""

    def __init__(self) -> None:
        self.left = iter(range(LENGTH))

    def __iter__(self):
        return self

    def __next__(self):
        return torch.tensor(next(self.left))


class OnceByWorker(Once):
    def __next__(self):
        info = get_worker_info()
        while (number := next(self.left)) % (info.num_workers if info else 1) != (info.id if info else 0):
            pass
        return torch.tensor(number)


class HuggingFace(Plain):
    """As ``datasets.IterableDataset._iter_pytorch``: shards to workers, in an order that follows from the epoch."""

    def __init__(self, shards: int = 12, node: tuple[int, int] = (0, 1)) -> None:
        self.shards, self.node, self.epoch = shards, node, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch += epoch - self.epoch

    def order(self):
        size = LENGTH // self.shards
        shards = [range(i * size, (i + 1) * size) for i in range(self.shards)]
        np.random.default_rng(self.epoch).shuffle(shards)
        shards = shards[self.node[0] :: self.node[1]]
        info = get_worker_info()
        if info is not None and info.num_workers:
            shards = shards[info.id :: info.num_workers]
        for shard in shards:
            yield from shard


def by_node(shards: int = 12) -> HuggingFace:
    """``split_dataset_by_node``: the rank is fixed where the data set is made."""
    return HuggingFace(shards, (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])))


class WebDataset(Plain):
    """As ``webdataset.shardlists``: all splitters read rank and worker, whatever they use of them."""

    def __init__(self, *, nodes: bool, workers: bool, shuffle: bool = False) -> None:
        self.nodes, self.workers, self.shuffle = nodes, workers, shuffle

    def order(self):
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        info = get_worker_info()
        worker, count = (info.id, info.num_workers) if info else (0, 1)
        shards = [range(i * 4, i * 4 + 4) for i in range(12)]
        if self.nodes:
            shards = islice(shards, rank, None, world_size)
        if self.workers:
            shards = islice(shards, worker, None, count)
        numbers = [number for shard in shards for number in shard]
        if not numbers:
            raise ValueError("No samples found in dataset; perhaps you have fewer shards than workers.")
        if self.shuffle:
            random.Random(os.urandom(8)).shuffle(numbers)
        return iter(numbers)


class ByHand(Plain):
    """rank · workers + worker, as many scripts do it."""

    def order(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        number = dist.get_rank() * workers + worker if dist.is_initialized() else worker
        ranks = dist.get_world_size() if dist.is_initialized() else 1
        return iter(range(number, LENGTH, ranks * workers))


class ByRank(Plain):
    def order(self):
        return iter(range(int(os.environ["RANK"]), LENGTH, int(os.environ["WORLD_SIZE"])))


class AsksLate(Plain):
    """Two files of which it splits the second one only."""

    def order(self):
        yield from range(24)
        info = get_worker_info()
        yield from range(24 + (info.id if info else 0), LENGTH, info.num_workers if info else 1)


class Position(Plain):
    """torchdata's protocol: its state is the number of its next sample. Notes each number that it reads in a file."""

    def __init__(self, path: str = os.devnull, *, late: int = 0) -> None:
        self.next, self.path, self.late = 0, path, late

    def order(self):
        with Path(self.path).open("a", buffering=1) as file:
            while self.next < LENGTH:
                self.next += 1
                print(self.next - 1, file=file)
                yield self.next - 1
        self.next = 0

    def state_dict(self):
        return {"next": self.next - self.late, "of": [self.path, torch.arange(3)]}

    def load_state_dict(self, state) -> None:
        self.next = state["next"]


class CountsPasses(IterableDataset):
    """Another order in each pass, whose number it counts. Its state is that number, and the place in the pass."""

    def __init__(self) -> None:
        self.passes = self.next = 0

    def __iter__(self):
        while self.next < LENGTH:
            self.next += 1
            yield torch.tensor((self.next - 1) * (5, 7, 1)[self.passes % 3] % LENGTH)
        self.passes, self.next = self.passes + 1, 0

    def state_dict(self):
        return dict(vars(self))

    def load_state_dict(self, state) -> None:
        vars(self).update(state)


class Unreadable(Position):
    """Cannot load its own state."""

    def load_state_dict(self, state) -> None:
        raise IndexError("list index out of range")


class DrawsBetween(Position):
    """Also draws from a global generator, whose state is not in its own: eight samples at a time, shuffled."""

    def order(self):
        while self.next < LENGTH:
            some = list(range(self.next, self.next + 8))
            random.shuffle(some)
            for number in some:
                self.next += 1
                yield number
        self.next = 0


class Shards(HuggingFace):
    """As Hugging Face's: the state says how many samples a worker has read in one epoch."""

    started = read = 0

    def order(self):
        self.read, whole = self.started, list(super().order())
        for number in whole[self.started :]:
            self.read += 1
            yield number

    def state_dict(self):
        return {"read": self.read}

    def load_state_dict(self, state) -> None:
        self.started = state["read"]


def feed_of(run: rankup.Run, dataset, sharded, workers: int, *, training: bool, **loader) -> StreamFeed:
    world = run.world
    if workers:
        loader = {"num_workers": workers, "multiprocessing_context": "fork", **loader}
    return StreamFeed(
        dataset,
        6,
        world.rank,
        world.world_size,
        1,
        CPU,
        make_precision("fp32", CPU),
        run._context.control,
        fill=training,
        sharded=sharded,
        loader=loader,
    )


def saved_and_read(state: object) -> dict:
    """What a snapshot makes of it."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def numbers(batches) -> list[int]:
    return [number for batch in batches if batch.samples for number in batch.value.tolist()]


def passes(
    cases: dict[str, tuple], workers: int, epochs: int = 1, evaluated: tuple[str, ...] = ()
) -> dict[str, object]:
    """By case (data set, ``sharded``): what this rank saw in each epoch, then in an evaluation; or the error."""
    run = rankup.init(seed=1)
    seen: dict[str, object] = {}
    for name, (make, sharded) in cases.items():
        try:
            feed = feed_of(run, make(), sharded, workers, training=True)
            held = [numbers(feed.batches(epoch, 0)) for epoch in range(epochs)]
            if name in evaluated:
                held.append(numbers(feed_of(run, make(), sharded, workers, training=False).batches(0, 0)))
            seen[name] = held
        except RankupError as error:
            seen[name] = error.code
        except ValueError as error:
            seen[name] = str(error)
    return seen
