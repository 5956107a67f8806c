"""Data that fits in memory: one tensor per column, gathered and transformed a batch at a time on the device."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial

import torch

from rankup.errors import RankupError
from rankup.runtime.data.batches import CHUNK, PreparedData, cut, cut_of, steps_of
from rankup.runtime.data.portions import Batch, Position
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
        self.ready = []
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
        key = derive(self.sharding.seed, "augment", epoch)
        cast = self._precision.parameters is not None
        transform = self._transform
        per_step = len(self.sharding.parts(plan.total(0), self._parts))
        steps = max(1, CHUNK // per_step)
        # A matrix product's last bit depends on the position of its operands in memory. So after a resume, chunks begin
        # at the same steps as without it, and each batch has the same position in its chunk.
        first = start - start % steps
        before = start - first  # steps that are done
        for pieces in cut(self.sharding, plan, first, self._parts, fill=self._fill, steps=steps):
            sizes = pieces.sizes
            numbers = order.rows(pieces.spans)
            gathered = [iter(_gather(column, numbers, sizes)) for column in self._columns]
            if transform is None and not cast and pieces.alike and len(numbers) * self._widest <= CACHED:
                self.ready = ready = list(zip(*gathered, strict=True) if len(gathered) > 1 else gathered[0])
                ready.reverse()
                if before:
                    del ready[-before:]
                    before = 0
                while ready:  # none is held longer than the loop holds it
                    yield Batch(ready.pop(), *pieces.counts[0])
                continue
            if transform is not None:
                numbered = numbers if keys is order else keys.rows(pieces.spans)
                piece_keys = iter(numbered.split_with_sizes(sizes))
            for counts in pieces.counts:
                # ``zip`` would hold what it gave last, whose memory the next gather finds in the cache.
                columns: Columns = tuple(map(next, gathered))
                if transform is not None:
                    random = SampleRandom(key, next(piece_keys))
                if before:
                    before -= counts[2]
                    continue
                if transform is not None:
                    columns = transform(columns, random)
                if cast:
                    columns = tuple(self._precision.cast(column) for column in columns)
                yield Batch(columns if len(columns) > 1 else columns[0], *counts)


def _gather(column: torch.Tensor, numbers: torch.Tensor, sizes: Sequence[int]) -> Iterable[torch.Tensor]:
    """The rows of each piece: by one gather for all if they fit into the cache, else one by one."""
    if len(numbers) * column[0].nbytes <= CACHED:
        return column.index_select(0, numbers).split_with_sizes(sizes)
    return map(partial(column.index_select, 0), numbers.split_with_sizes(sizes))
