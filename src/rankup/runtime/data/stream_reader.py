"""The reader of a stream: runs in a loader's worker, or without workers in the rank's own process.

It gives a ``StreamStart`` (how the pass begins), then one ``StreamStep`` per step, then a ``StreamEnd``. Each step has
a mark: how far the stream was read before it. A resume goes to the mark of the last step that was done, by the state of
a data set that has ``state_dict`` and ``load_state_dict``; any other is read again. Then that step is made once more
and compared. If a state does not lead to the same samples, it is not used, and the data set gets back the attributes
that it had before.

The data set draws from generators that have the same seed on all ranks and workers: if it shuffles with the global
generators, its order is the same everywhere."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.utils.data import IterableDataset, get_worker_info

from rankup.runtime.data.generators import Generators
from rankup.runtime.data.stream_split import Reader, Split, StreamEnd, StreamStart
from rankup.runtime.data.worker_info import PresentedWorker, presented
from rankup.runtime.digest import digest
from rankup.runtime.seed import derive
from rankup.strategies.batch_plan import share

FIRST = 4  # samples that are compared before the first step
EVERY = 64  # every 64th of the others is compared later, and those whose number is a power of two
KEEP = 16  # steps between two states of a data set that are kept


class StreamStep(NamedTuple):
    """``pieces``: the micro-batches, as (collated, samples in it). ``mark``: plain values. ``read`` and ``digest`` of
    the stream before this step, ``last``: a digest of this step's last sample, ``number`` of the step for this reader,
    ``kept``: an earlier mark with the state of the data set there, None if it is the one of the step before."""

    worker: int
    pieces: list[tuple[Any, int]]
    mark: dict[str, Any]


class StreamSource:
    """One iteration of the data set, by a reader that is presented to it: from its beginning, or from ``kept``."""

    def __init__(
        self,
        dataset: Any,
        key: int,
        shown: tuple[int, int] | None,
        kept: dict[str, Any] | None,
    ) -> None:
        self._dataset = dataset
        self._worker = None if shown is None else PresentedWorker(*shown, key, dataset)
        self._generators = Generators(key)
        self.read: int = 0 if kept is None else kept["read"]
        self.digest: str = "" if kept is None else kept["digest"]
        with self._as_reader():
            if kept is not None:
                self._dataset.load_state_dict(copy.deepcopy(kept["state"]))
            self.begin = self._begin()
            samples = iter(self._dataset)
            head = list(itertools.islice(samples, FIRST))
        self.first = tuple(sample_digest(sample) for sample in head)
        self._ahead = self.read + len(head)  # the data set has given so many already
        self._samples = self._watched(itertools.chain(head, samples))

    @property
    def asked(self) -> bool:
        return self._worker is not None and self._worker.asked

    @contextmanager
    def _as_reader(self) -> Iterator[None]:
        """Around the code of the data set."""
        with presented(self._worker), self._generators.in_use():
            yield

    def take(self, count: int, first: int, step: int) -> list[Any]:
        """The next ``count`` samples of number ``first``, ``first + step``, … of the stream; fewer at its end."""
        with self._as_reader():
            mine = (sample for number, sample in self._samples if number % step == first)
            return list(itertools.islice(mine, count))

    def skip_to(self, read: int) -> None:
        with self._as_reader():
            for _ in itertools.islice(self._samples, read - self.read):
                pass

    def state(self) -> dict[str, Any] | None:
        """The mark to which a source can go at once. None if the data set has no state; if it draws from the global
        generators, which its state does not contain; and at the first samples."""
        if not has_state(self._dataset) or not self._generators.untouched or self.read < self._ahead:
            return None
        with self._as_reader():
            return self._mark()

    def _begin(self) -> dict[str, Any] | None:
        """The mark of the beginning: what a data set counts over its passes is in its state. None if it has a state
        only while it is read."""
        try:
            return self._mark() if has_state(self._dataset) else None
        except Exception:  # of the data set
            return None

    def _mark(self) -> dict[str, Any] | None:
        state = copy.deepcopy(self._dataset.state_dict())
        return None if state is None else {"read": self.read, "digest": self.digest, "state": state}

    def _watched(self, samples: Iterator[Any]) -> Iterator[tuple[int, Any]]:
        for sample in samples:
            number = self.read
            self.read += 1
            if number % EVERY == 0 or number & (number - 1) == 0:
                self.digest = digest([self.digest, sample_digest(sample)])
            yield number, sample


@dataclass(eq=False)
class StreamReader(IterableDataset[Any]):
    """``size``: samples per step of this rank, cut into ``parts`` micro-batches; one without samples repeats the first
    sample. ``marks`` of all workers if the next pass goes on from them, with ``turn``: whose step is the next one."""

    dataset: IterableDataset[Any]
    sharded: bool | str | None
    rank: int
    world_size: int
    seed: int
    size: int
    parts: int
    collate: Callable[[list[Any]], Any]
    training: bool
    epoch: torch.Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.int64))  # in shared memory
    marks: list[dict[str, Any] | None] = field(default_factory=list)
    turn: int = 0

    def __iter__(self) -> Iterator[StreamStart | StreamStep | StreamEnd]:
        info = get_worker_info()
        process, workers = (info.id, info.num_workers) if info else (0, 1)
        # The loader takes a step of each worker in turn, beginning with the first process.
        worker = (process + self.turn) % workers
        reader = Reader(self.rank, self.world_size, worker, workers)
        epoch = int(self.epoch)
        if self.training and info is not None:
            set_epoch(self.dataset, epoch)  # a persistent worker's copy still has an earlier one
        key = derive(self.seed, "stream", epoch)
        mark = self.marks[worker] if self.marks else None
        before = dict(vars(self.dataset))
        for kept in (mark["kept"], None) if mark and mark["kept"] else (None,):
            vars(self.dataset).clear()
            vars(self.dataset).update(before)
            try:
                source = StreamSource(self.dataset, key, reader.shown(self.sharded), kept)
                steps = self._steps(source, reader, epoch, mark["number"] if mark else 0)
                start = StreamStart(reader, source.asked, source.first)
                if mark:
                    source.skip_to(mark["read"])
                    redone = next(steps, None)
                    same = redone is not None and all(
                        redone.mark[name] == mark[name] for name in ("digest", "last")
                    )
                    start = start._replace(first=None, redone=redone and redone.pieces, same=same)
            except Exception:  # of the data set
                if kept is None:
                    raise
                continue
            if start.same:  # otherwise the state leads elsewhere, and is not used
                break
        yield start
        yield from steps
        yield StreamEnd(reader, source.asked, source.read, source.digest)

    def _steps(self, source: StreamSource, reader: Reader, epoch: int, done: int) -> Iterator[StreamStep]:
        stripe = Split.of(self.sharded, source.asked).stripe(reader)
        for number in itertools.count(done):
            kept = source.begin if number == 0 else source.state() if number % KEEP == 0 else None
            before = {"read": source.read, "digest": source.digest, "number": number, "kept": kept}
            samples = source.take(self.size, *stripe)
            if not samples:
                return
            pieces = []
            with Generators(derive(self.seed, "stream", "collate", epoch, reader.number, number)).in_use():
                for part in range(self.parts):
                    a, b = share(len(samples), part, self.parts)
                    pieces.append((self.collate(samples[a:b] or samples[:1]), b - a))
            yield StreamStep(reader.worker, pieces, {**before, "last": sample_digest(samples[-1])})


def has_state(dataset: Any) -> bool:
    return all(callable(getattr(dataset, name, None)) for name in ("state_dict", "load_state_dict"))


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
