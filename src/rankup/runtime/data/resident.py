"""Data that fits in memory: one tensor per column, gathered and transformed a batch at a time on the device."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import accumulate, groupby, repeat
from typing import Any

import torch

from rankup.errors import RankupError
from rankup.runtime.data.batches import CHUNK, LONG, PreparedData, cut, cut_of, steps_of
from rankup.runtime.data.portions import Batch, Position, Ready
from rankup.runtime.data.sharding import Sharding
from rankup.runtime.loop.precision import Precision
from rankup.runtime.seed import SampleRandom, derive

Columns = tuple[torch.Tensor, ...]
Transform = Callable[[Columns, SampleRandom], Columns]

# Bytes that a batch's maker and its reader share a core's second-level cache for. A quarter of it costs a loop over
# images at batch 64 a tenth of its speed (``python -m benchmarks loader``).
CACHED = 1024 * 1024


class ResidentData:
    """``ResidentData(images, labels, transform=…)``: columns of equal length, resident on the rank's device.

    Each column is (N, …), of any dtype; uint8 stays uint8 in memory. ``transform(columns, random)`` sees a gathered
    batch on the device, (n, …) per column, and returns what the loop gets: normalise there, and augment with
    ``random``, whose numbers are keyed on (seed, epoch, sample) and so the same on any number of processes.
    """

    def __init__(self, *columns: torch.Tensor, transform: Transform | None = None) -> None:
        if not columns or len({len(column) for column in columns}) != 1:
            raise RankupError(
                "columns-differ",
                f"resident data requires columns of one length, got {[len(column) for column in columns]}",
            )
        self.columns = columns
        self.transform = transform
        self._placed: dict[torch.device, Columns] = {}

    def __len__(self) -> int:
        return len(self.columns[0])

    def on(self, device: torch.device) -> Columns:
        """The columns on ``device``; moved once."""
        if device not in self._placed:
            self._placed[device] = tuple(column.to(device) for column in self.columns)
        return self._placed[device]


class ResidentDataFeed(PreparedData):
    """Tensors on the device: one gather and one transform per batch, no worker, no copy."""

    def __init__(
        self,
        data: ResidentData,
        sharding: Sharding,
        device: torch.device,
        precision: Precision,
        *,
        parts: int = 1,
        fill: bool = True,
    ) -> None:
        self.position = Position()
        self._columns = data.on(device)
        self.dataset = (
            data if device.type == "cpu" else None
        )  # else its columns are copies, and may be let go
        self._transform = data.transform
        self._widest = max(column[:1].nbytes for column in self._columns)
        self.sharding = sharding
        self._device = device
        self._precision = precision
        self._parts = parts
        self._fill = fill

    @property
    def steps(self) -> int:
        return steps_of(self.sharding, self.position)

    @property
    def cut(self) -> dict[str, int | None]:
        return cut_of(self.sharding, self._parts)

    def batches(self, epoch: int, start: int) -> Generator[Batch, None, None]:
        plan = self.sharding.plan(epoch)
        order = plan.order.on(self._device)
        keys = order if plan.keys is plan.order else plan.keys.on(self._device)
        maker = _Maker(self._columns, self._transform, derive(self.sharding.seed, "augment", epoch))
        if self._precision.parameters is not None:
            maker.cast = self._precision.cast
        per_step = len(self.sharding.parts(plan.total(0), self._parts))
        fits = CHUNK * plan.total(0) * self._widest <= CACHED * self.sharding.world_size
        steps = max(1, (CHUNK if fits else LONG) // per_step)
        # A matrix product's last bit depends on the position of its operands in memory. So after a resume, chunks begin
        # at the same steps as without it, and each batch has the same position in its chunk.
        first = start - start % steps
        before = start - first  # steps that are done
        for pieces in cut(self.sharding, plan, first, self._parts, fill=self._fill, steps=steps):
            numbers = order.rows(pieces.spans)
            keyed = numbers if keys is order or self._transform is None else keys.rows(pieces.spans)
            done = before and list(accumulate(int(counts[2]) for counts in pieces.counts)).index(before) + 1
            before = 0
            values, made = maker.batches(numbers, keyed, pieces.sizes, done)
            for counts, alike in groupby(pieces.counts[done:]):
                self.ready = ready = Ready(values, len([*alike]), made=made)
                while ready.left:
                    yield Batch(ready.next(), *counts)


class _Maker:
    """Makes the batches of an epoch. ``key``: what the epoch's random numbers are keyed on."""

    def __init__(self, columns: Columns, transform: Transform | None, key: int) -> None:
        self.cast: Callable[[torch.Tensor], torch.Tensor] | None = None
        self._columns = columns
        self._transform = transform
        self._key = key

    def batches(
        self, numbers: torch.Tensor, keys: torch.Tensor, sizes: Sequence[int], done: int
    ) -> tuple[Iterator[Any], bool]:
        """Batches of ``sizes``, of the rows ``numbers``, but for the first ``done``; and whether they are made already.
        Of a column that fits into the cache, all rows are gathered at once; of the others those of one batch, so that
        the next one finds the memory of the last one there."""
        at_once = [len(numbers) * column[:1].nbytes <= CACHED for column in self._columns]
        as_is = self._transform is None and self.cast is None
        made = as_is and all(at_once)
        chosen = () if made else _parts(numbers, sizes)
        columns = [
            _parts(column.index_select(0, numbers), sizes)[done:]
            if whole
            else map(column.index_select, repeat(0), chosen[done:])
            for column, whole in zip(self._columns, at_once, strict=True)
        ]
        if as_is:
            return (zip(*columns, strict=True) if len(columns) > 1 else iter(columns[0])), made
        keyed = chosen if keys is numbers else _parts(keys, sizes)
        return map(self._changed, zip(*columns, strict=True), keyed[done:]), made

    def _changed(self, columns: Columns, keys: torch.Tensor) -> Any:
        if self._transform is not None:
            columns = self._transform(columns, SampleRandom(self._key, keys))
        if self.cast is not None:
            columns = tuple([self.cast(column) for column in columns])
        return columns if len(columns) > 1 else columns[0]


def _parts(rows: torch.Tensor, sizes: Sequence[int]) -> Sequence[torch.Tensor]:
    """Views of ``sizes`` rows, one after another."""
    if sizes.count(sizes[0]) == len(sizes):  # nearly all chunks; it takes a third less time than a split
        return rows.view(len(sizes), sizes[0], *rows.shape[1:]).unbind()
    return rows.split_with_sizes(sizes)
