"""Training on an ``IterableDataset`` of unknown length and order: each sample once, but without the exactness promise.

Before the first step of a stream the ranks find out who splits it (``stream_split.py``). Before each step they sum the
numbers of their samples: the sum weights their gradients, and zero ends the epoch. So a rank whose part ends early goes
on with dummy batches, and the others do not wait for it in a collective. The sum for the next step is exchanged while
this one computes. After a complete pass the ranks compare what was read and handed out.

A resume skips as many steps as were done. These are the samples that were seen only if as many readers read the stream
as before, and if it begins with the same samples: rank 0 warns where they are others.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import warnings
from collections.abc import Generator, Iterator
from typing import Any

import torch
from torch.utils.data import IterableDataset, default_collate

from rankup.core.share import share
from rankup.errors import RankupError
from rankup.runtime.data.batches import Batch, PreparedData
from rankup.runtime.data.loader_options import Loader, loader_options
from rankup.runtime.data.loaders import mover
from rankup.runtime.data.position import Position
from rankup.runtime.data.stream_pass import (
    StreamEnd,
    StreamOpening,
    check_pass,
    length_warning,
    other_opening,
)
from rankup.runtime.data.stream_reader import StreamNotes, StreamReader, set_epoch
from rankup.runtime.data.stream_split import StreamStart, check_sharded, decide, known
from rankup.runtime.distributed.control import Control, Exchange
from rankup.runtime.loop.precision import Precision
from rankup.runtime.seed import derive


class StreamFeed(PreparedData):
    """``global_batch`` samples per step over all ranks while every rank has enough; fewer near the end.

    ``sharded`` says who splits the stream over ranks and loader workers; None finds out.
    """

    _made = itertools.count()  # ranks make the same streams in the same order

    def __init__(
        self,
        dataset: IterableDataset[Any],
        global_batch: int,
        rank: int,
        world_size: int,
        seed: int,
        device: torch.device,
        precision: Precision,
        control: Control | None,
        *,
        parts: int = 1,
        fill: bool = True,
        sharded: bool | str | None = None,
        loader: dict[str, Any] | None = None,
    ) -> None:
        check_sharded(sharded)
        if fill and rank == 0:
            warnings.warn(
                "an IterableDataset has no order to keep: training on it is neither the same on another number of "
                "processes nor exact after a resume; a map-style Dataset is",
                stacklevel=4,
            )
        self.position = Position()
        options = loader_options(loader or {}, device)
        collate = options.pop("collate_fn", None) or default_collate
        start, stop = share(global_batch, rank, world_size)
        self._workers = max(1, options.get("num_workers", 0))
        readers = world_size * self._workers
        self._notes = StreamNotes(known(sharded, readers), shared=options.get("num_workers", 0) > 0)
        self._generator = torch.Generator()
        self._loader = Loader(
            StreamReader(
                dataset,
                self._notes,
                sharded,
                rank,
                world_size,
                seed,
                stop - start,
                parts,
                collate,
                training=fill,
            ),
            batch_size=None,
            generator=self._generator,
            collate_fn=_as_is,
            **options,
        )
        self._number = next(self._made)
        self._dataset = dataset
        self._sharded = sharded
        self._seed = derive(seed, "stream", rank)
        self._control = control
        self._move = mover(device, precision)
        self._fill = fill
        self._rank = rank
        self._world_size = world_size
        self._ends: list[StreamEnd] = []
        self._begins: dict[int, list[str]] = {}  # worker → digests of the first samples of this pass
        self._saved: StreamOpening | None = None  # of the pass that a resume continues
        self._handed = 0  # samples of this pass that this rank has got, also those that a resume skips
        self.cut: dict[str, int | None] = {
            "length": None,
            "global_batch": global_batch,
            "accumulate": parts,
            "drop_last": 0,
            "sampler": None,
        }

    @property
    def steps(self) -> None:
        return None

    def batches(self, epoch: int, start: int) -> Generator[Batch, None, None]:
        self._generator.manual_seed(derive(self._seed, epoch))
        if self._fill:
            set_epoch(self._dataset, epoch)
        self._ends, self._handed, self._begins = [], 0, {}
        self._notes.begin(epoch)
        saved, self._saved = self._saved if start else None, None
        try:
            local = self._local(iter(self._loader))
            last: Any = None
            for _ in range(start):
                last = next(local, None) or last
            if saved is not None and self._rank == 0 and (other := other_opening(saved, self.opening, start)):
                print(f"warning: {other}", file=sys.stderr, flush=True)
            in_step = self._fill and self._control is not None
            yield from self._in_step(local, last) if in_step else self._alone(local)
        except GeneratorExit:
            # The other ranks may have finished their evaluation, and wait in the comparison below.
            if not self._fill:
                with contextlib.suppress(RankupError, RuntimeError, ValueError):  # the process may be ending
                    self._gather((None, [], 0))
            raise
        finally:
            self._notes.end()
        self._check_pass()

    @property
    def opening(self) -> StreamOpening:
        """How the pass in progress began for this rank: a state has it."""
        return {
            "readers": [self._world_size, self._workers],
            "first": [self._begins.get(worker, []) for worker in range(self._workers)],
        }

    def resume(self, saved: StreamOpening | None) -> None:
        """``opening`` of the pass that goes on; None if another number of ranks saved it."""
        self._saved = saved or {"readers": [], "first": []}

    def _local(self, items: Iterator[Any]) -> Iterator[Any]:
        """This rank's steps, in lists of (value, samples)."""
        if self._notes.read()[2] is None:
            looks: list[StreamStart] = [next(items) for _ in range(self._workers)]
            self._begins = {look.reader.worker: list(look.first) for look in looks}
            everyone = [look for rank in self._gather(looks) for look in rank]
            self._notes.tell(decide(everyone, self._sharded))
        for item in items:
            if isinstance(item, StreamEnd):
                self._ends.append(item)
            elif isinstance(item, StreamStart):
                self._begins[item.reader.worker] = list(item.first)
            else:
                self._handed += sum(count for _, count in item)
                yield item

    def _alone(self, local: Iterator[Any]) -> Iterator[Batch]:
        for pieces in local:
            total = sum(count for _, count in pieces)
            for number, (value, count) in enumerate(pieces):
                if count or self._fill:
                    yield Batch(self._place(value), count, total, number == len(pieces) - 1)

    def _in_step(self, local: Iterator[Any], dummy: Any) -> Iterator[Batch]:
        """``dummy``: a step that a resume has skipped, for a rank whose part had ended before it."""
        pieces, total = self._announce(local)
        while True:
            held, held_total = pieces, int(total.wait()[0])
            if held_total == 0:
                return
            if held is None:
                if dummy is None:
                    raise RankupError(
                        "stream-too-short",
                        f"rank {self._rank} got no sample at all from the stream while others did",
                        hint="the stream, or its number of shards, is smaller than the number of ranks",
                        exit_code=1,
                    )
                held = [(value, 0) for value, _ in dummy]
            dummy = held
            pieces, total = self._announce(local)  # the next step's, while this one computes
            for number, (value, count) in enumerate(held):
                yield Batch(self._place(value), count, held_total, number == len(held) - 1)

    def _announce(self, local: Iterator[Any]) -> tuple[Any, Exchange]:
        pieces = next(local, None)
        assert self._control is not None
        mine = sum(count for _, count in pieces) if pieces else 0
        return pieces, self._control.begin("the next batch of a stream", mine)

    def _check_pass(self) -> None:
        """A collective, for a pass that this rank has completed."""
        reports = self._gather((self._number, self._ends, self._handed))
        split = self._notes.read()[2]
        if split is None or any(number != self._number for number, _, _ in reports):
            return  # a rank has left it, or two evaluations in a zip did not end in the same order on all ranks
        handed = sum(count for _, _, count in reports)
        check_pass(split, [end for _, ends, _ in reports for end in ends], handed, self._sharded)
        try:
            length = len(self._dataset)  # type: ignore[arg-type]  # some have one
        except (TypeError, NotImplementedError):
            length = None
        if self._rank == 0 and (warning := length_warning(length, handed)) is not None:
            warnings.warn(warning, stacklevel=2)

    def _gather(self, mine: Any) -> list[Any]:
        return [mine] if self._control is None else self._control.gather("a pass over a stream", mine)

    def _place(self, value: Any) -> Any:
        return value if self._move is None else self._move(value)


def _as_is(value: Any) -> Any:
    return value
