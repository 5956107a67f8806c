"""The reader of a stream: runs in a loader's worker, or without workers in the rank's own process.

It gives ``StreamStart`` (how the stream begins), then one list of micro-batches per step, then ``StreamEnd``. The
data set draws from generators that have the same seed on all ranks and workers: if it shuffles with the global
generators, its order is the same everywhere."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from itertools import chain, islice
from multiprocessing import parent_process
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from rankup.core.share import share
from rankup.runtime.data.generators import Generators
from rankup.runtime.data.stream_pass import StreamEnd
from rankup.runtime.data.stream_split import Reader, Split, StreamStart
from rankup.runtime.data.worker_info import PresentedWorker, presented
from rankup.runtime.seed import derive
from rankup.runtime.tracing.digest import digest

FIRST = 4  # samples that are compared before the first step
EVERY = 64  # at the end, every 64th of the others is compared, and those whose number is a power of two
UNKNOWN = -1
_POLL_S = 0.002


class StreamNotes:
    """What the feed tells its readers, also those in persistent workers: the pass, the epoch, the split."""

    def __init__(self, split: Split | None, *, shared: bool) -> None:
        self._values = torch.tensor([0, 0, UNKNOWN if split is None else int(split)])
        if shared:
            self._values.share_memory_()  # type: ignore[no-untyped-call]

    def begin(self, epoch: int) -> None:
        """The next pass; readers of the one before end."""
        self._values[1] = epoch
        self._values[0] += 1

    def end(self) -> None:
        self._values[0] += 1

    def tell(self, split: Split) -> None:
        self._values[2] = int(split)

    def read(self) -> tuple[int, int, Split | None]:
        turn, epoch, split = self._values.tolist()
        return turn, epoch, None if split == UNKNOWN else Split(split)

    def wait(self) -> Split | None:
        """The split; None if the pass, or the rank, has ended instead."""
        begun, rank, parent = self.read()[0], parent_process(), os.getppid()
        while os.getppid() == parent and (rank is None or rank.is_alive()):
            turn, _, split = self.read()
            if turn != begun:
                return None
            if split is not None:
                return split
            time.sleep(_POLL_S)
        return None


class StreamSource:
    """One iteration of the data set, by a reader that is presented to it."""

    def __init__(self, dataset: IterableDataset[Any], key: int, shown: tuple[int, int] | None) -> None:
        self._worker = None if shown is None else PresentedWorker(*shown, key, dataset)
        self._generators = Generators(key)
        self._hash = hashlib.sha256()
        self._error: Exception | None = None
        self._head: list[Any] = []
        self.read = 0
        with presented(self._worker), self._generators.in_use():
            try:
                self.samples: Iterator[Any] = iter(dataset)
                for sample in islice(self.samples, FIRST):
                    self._head.append(sample)
            except Exception as error:  # raised again when the sample is due
                self._error = error
                self.samples = iter(())
        self.first = tuple(sample_digest(sample) for sample in self._head)
        self.failed = self._error is not None and not self._head
        self._asked_first = self.asked

    @property
    def asked(self) -> bool:
        return self._worker is not None and self._worker.asked

    def close(self) -> None:
        with presented(self._worker), self._generators.in_use():
            if (close := getattr(self.samples, "close", None)) is not None:
                close()

    def stripe(self, first: int, step: int, size: int) -> Iterator[list[Any]]:
        """Lists of ``size`` samples: number ``first`` of the stream, and every ``step``-th after it."""
        samples = islice(self._all(watch=step > 1), first, None, step)
        while True:
            with presented(self._worker), self._generators.in_use():
                some = list(islice(samples, size))
            if not some:
                return
            yield some

    def end(self, reader: Reader) -> StreamEnd:
        return StreamEnd(reader, self.read, self._hash.hexdigest(), self.asked and not self._asked_first)

    def _all(self, *, watch: bool) -> Iterator[Any]:
        for number, sample in enumerate(chain(self._head, self.samples)):
            self.read += 1
            if watch and (number % EVERY == 0 or number & (number - 1) == 0):
                self._hash.update(sample_digest(sample).encode())
            yield sample
        self._head = []
        if self._error is not None:
            raise self._error


class StreamReader(IterableDataset[Any]):
    """``size``: samples per step of this rank, cut into ``parts`` micro-batches of (collated, samples in it); one
    without samples repeats the first sample."""

    def __init__(
        self,
        dataset: IterableDataset[Any],
        notes: StreamNotes,
        sharded: bool | str | None,
        rank: int,
        world_size: int,
        seed: int,
        size: int,
        parts: int,
        collate: Callable[[list[Any]], Any],
        *,
        training: bool,
    ) -> None:
        self._dataset = dataset
        self._notes = notes
        self._sharded = sharded
        self._rank = rank
        self._world_size = world_size
        self._seed = seed
        self._size = size
        self._parts = parts
        self._collate = collate
        self._training = training

    def __iter__(self) -> Iterator[StreamStart | StreamEnd | list[tuple[Any, int]]]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        reader = Reader(self._rank, self._world_size, worker, workers)
        _, epoch, split = self._notes.read()
        if self._training and info is not None:
            set_epoch(self._dataset, epoch)  # a persistent worker's copy still has an earlier one
        key = derive(self._seed, "stream", epoch)
        source = StreamSource(self._dataset, key, reader.shown(self._sharded, split))
        if split is None:
            look, source = self._look(reader, source, key)
            yield look
            split = self._notes.wait()
            if split is None:
                return
            if split is Split.OVER_RANKS and look.asked:
                source.close()
                source = StreamSource(self._dataset, key, reader.shown(self._sharded, split))
        else:
            yield StreamStart(reader, source.asked, source.first, failed=source.failed)
        drawn = Generators(derive(self._seed, "stream", "collate", epoch, reader.number))
        for samples in source.stripe(*reader.stripe(split), self._size):
            pieces = []
            with drawn.in_use():
                for part in range(self._parts):
                    a, b = share(len(samples), part, self._parts)
                    pieces.append((self._collate(samples[a:b] or samples[:1]), b - a))
            yield pieces
        yield source.end(reader)

    def _look(self, reader: Reader, source: StreamSource, key: int) -> tuple[StreamStart, StreamSource]:
        """How the stream begins, and the source to go on with.

        A data set that asks which worker it is may also split over ranks. Then it would give each rank, as the only
        reader, different samples. That is tested with a second iterator, and a third one replaces the first, which may
        share a file with it. An iterator that is its own data set is never tested twice.
        """
        look = StreamStart(reader, source.asked, source.first, failed=source.failed)
        if not source.asked or self._sharded is not None or reader.world_size == 1 or source.failed:
            return look, source
        if id(source.samples) == id(self._dataset):
            return StreamStart(reader, True, source.first, None, False), source
        source.close()
        alone = StreamSource(self._dataset, key, (0, 1))
        alone.close()
        again = StreamSource(self._dataset, key, reader.shown(None, None))
        repeats = again.first == source.first and alone.samples is not again.samples
        return StreamStart(reader, True, source.first, None if alone.failed else alone.first, repeats), again


def set_epoch(dataset: Any, epoch: int) -> None:
    """Tell the epoch to a data set that shuffles by it. Not twice: Hugging Face's adds the difference in memory that
    workers share, and two workers that do so at once would be one epoch too far."""
    if callable(getattr(dataset, "set_epoch", None)) and getattr(dataset, "epoch", None) != epoch:
        dataset.set_epoch(epoch)


def sample_digest(sample: Any) -> str:
    """A short digest of one sample of any nesting. Of objects without bytes only the type counts."""
    return digest(_shown(sample))[:16]


def _shown(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, dict):
        return {key: _shown(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shown(item) for item in value]
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if callable(getattr(value, "tobytes", None)):  # NumPy's arrays and numbers, PIL's images
        return [str(getattr(value, "dtype", "")), list(getattr(value, "shape", ())), value.tobytes()]
    return value
