"""Feeds: from a data set to the batches of this rank, on its device, in the sharding's order.

``DatasetFeed`` reads any map-style ``Dataset`` through torch's DataLoader (workers, pinned memory, batched fetch where
the data set has ``__getitems__``); ``ResidentDataFeed`` gathers from tensors that live on the device. Streams are in
``stream.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any, NamedTuple, Protocol

import torch
from torch.utils.data import Dataset, Sampler, default_collate

from rankup.errors import RankupError
from rankup.runtime.data.loader_options import Loader, loader_options
from rankup.runtime.data.position import Position
from rankup.runtime.data.resident import Columns, ResidentData
from rankup.runtime.data.sample_rng import KeyedFetch
from rankup.runtime.data.sharding import Sharding
from rankup.runtime.data.step_plan import StepPlan
from rankup.runtime.loop.precision import Precision
from rankup.runtime.pytree import map_tensors
from rankup.runtime.seed import SampleRandom, derive

# Pieces that are indexed together; resident data holds as many gathered batches at a time, and no more.
CHUNK = 16
# Bytes that a batch's maker and its reader share a core's second-level cache for.
CACHED = 1024 * 1024


class Batch(NamedTuple):
    """What one rank computes on at once. A step is one batch, or several micro-batches of which one is ``last``."""

    value: Any  # what the loop gets
    samples: (
        int  # samples of this rank that count; 0 for a dummy batch, which only keeps a collective company
    )
    total: int  # samples of the whole step, over all ranks and micro-batches
    last: bool  # whether the optimizer steps after it
    part: int = 0  # which of the step's micro-batches, or of its virtual shards, it is


class DataFeed(Protocol):
    """The data of one rank. ``position`` is where training on it stands; ``cut`` tells two feeds apart in a state."""

    position: Position

    @property
    def cut(self) -> dict[str, int | None]:
        """What the position means something for: length, global batch, micro-batches."""
        ...

    @property
    def steps(self) -> int | None:
        """Steps per epoch; None where nobody can know."""
        ...

    def batches(self, epoch: int, start: int) -> Generator[Batch, None, None]:
        """The batches of ``epoch`` from step ``start`` on."""
        ...


class BatchSlice(NamedTuple):
    """One rank's part of one (micro-)batch: half-open bounds into the epoch's order."""

    start: int
    stop: int
    samples: int
    total: int
    last: bool
    part: int


def cut(sharding: Sharding, plan: StepPlan, start: int, parts: int, *, fill: bool) -> Iterator[BatchSlice]:
    """This rank's pieces, ``parts`` per step. Where a part is empty, training (``fill``) takes two samples to compute
    on (BatchNorm refuses one), so that every rank joins every collective, with a count of 0; an evaluation passes it
    over. Where the sharding is by virtual shards, ``parts`` is 1, and the pieces are those of this rank's shards."""
    total, own = -1, []
    for step in range(start, plan.steps):
        base = plan.starts[step]
        if plan.total(step) != total:  # the same in most steps
            total = plan.total(step)
            own = sharding.parts(total, parts)
        for part, low, high in own:
            last = part == own[-1][0]
            if high > low:
                yield BatchSlice(base + low, base + high, high - low, total, last, part)
            elif fill:
                two = max(0, min(base, len(plan.order) - 2))
                yield BatchSlice(two, min(two + 2, len(plan.order)), 0, total, last, part)


def cut_of(sharding: Sharding, parts: int) -> dict[str, int | None]:
    return {
        "length": sharding.length,
        "global_batch": sharding.global_batch or None,  # a batch sampler's vary
        "accumulate": parts,
        "drop_last": int(sharding.drop_last),
        "sampler": None if sharding.sampled is None else sharding.sampled.kind,
    }


def steps_of(sharding: Sharding, position: Position) -> int:
    """Steps of the epoch in progress: a sampler may give another number in each."""
    return sharding.steps if sharding.sampled is None else sharding.plan(position.epoch).steps


def chunks(pieces: Iterator[BatchSlice]) -> Iterator[list[BatchSlice]]:
    """Several pieces at a time: indexing once for all of them costs a fraction of indexing for each."""
    while chunk := list(islice(pieces, CHUNK)):
        yield chunk


class ResidentDataFeed:
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
        self._transform = data.transform
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
        order = plan.order.to(self._device)
        keys = order if plan.keys is plan.order else plan.keys.to(self._device)
        key = derive(self.sharding.seed, "augment", epoch)
        cast = self._precision.parameters is not None
        transform = self._transform
        # A matrix product's last bit depends on where its operands lie in memory: after a resume a batch lies where it
        # would have, in the chunk that begins where it would have.
        first = start - start % CHUNK
        before = start - first  # steps that are done
        for pieces in chunks(cut(self.sharding, plan, first, self._parts, fill=self._fill)):
            sizes = [piece.stop - piece.start for piece in pieces]
            numbers = _numbers(order, pieces)
            own_numbers = torch.split(numbers, sizes)
            own_keys = own_numbers if keys is order else torch.split(_numbers(keys, pieces), sizes)
            gathered = [_gather(column, numbers, own_numbers, sizes) for column in self._columns]
            for piece, own, *parts in zip(pieces, own_keys, *gathered, strict=True):
                if before:
                    before -= piece.last
                    continue
                columns: Columns = tuple(parts)
                if transform is not None:
                    columns = transform(columns, SampleRandom(key, own))
                if cast:
                    columns = tuple(self._precision.cast(column) for column in columns)
                yield Batch(columns if len(columns) > 1 else columns[0], *piece[2:])


def _numbers(order: torch.Tensor, pieces: list[BatchSlice]) -> torch.Tensor:
    """The sample numbers of all pieces; one slice where the pieces follow each other, as those of one process do."""
    if all(a.stop == b.start for a, b in pairwise(pieces)):
        return order[pieces[0].start : pieces[-1].stop]
    return torch.cat([order[piece.start : piece.stop] for piece in pieces])


def _gather(
    column: torch.Tensor, numbers: torch.Tensor, own_numbers: Sequence[torch.Tensor], sizes: list[int]
) -> Iterable[torch.Tensor]:
    """The rows of each piece: by one gather for all of them where they stay in the cache, one by one elsewhere."""
    if len(numbers) * column[0].nbytes <= CACHED:
        return torch.split(column.index_select(0, numbers), sizes)
    return (column.index_select(0, own) for own in own_numbers)


class _Order(Sampler[tuple[int, list[int], list[int]]]):
    """Hands (epoch, sample numbers, what their random numbers are keyed on) to the loader's workers; a persistent
    worker's own copy would know no epoch."""

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
        for pieces in chunks(cut(self.sharding, plan, self.start, self._parts, fill=self._fill)):
            base, end = min(piece.start for piece in pieces), max(piece.stop for piece in pieces)
            numbers = plan.order[base:end].tolist()
            keys = numbers if plan.keys is plan.order else plan.keys[base:end].tolist()
            for piece in pieces:
                own = slice(piece.start - base, piece.stop - base)
                yield self.epoch, numbers[own], keys[own]


class DatasetFeed:
    """Any map-style data set through a DataLoader whose sampler, batches and generator are ours."""

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
        # iter(DataLoader) draws from a generator even where nothing is random: not from the model's.
        self._generator = torch.Generator()
        self._loader = Loader(
            KeyedFetch(dataset, collate, sharding.seed, sample_rng),
            batch_size=None,
            sampler=self._order,
            collate_fn=_as_is,
            generator=self._generator,
            **options,
        )

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
        pieces = cut(self.sharding, plan, start, self._parts, fill=self._fill)
        move = self._move
        for piece, value in zip(pieces, self._loader, strict=True):
            _check_rows(value, piece.stop - piece.start)
            yield Batch(value if move is None else move(value), *piece[2:])


def _check_rows(value: Any, samples: int) -> None:
    """An error where a batch has lost samples, as by a ``collate_fn`` that drops bad ones: each rank's mean would be
    weighed by samples that are not in it. Only where all of its tensors tell the same."""
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
            "the loss: run.backward(loss, count=…)",
            exit_code=1,
        )


def mover(device: torch.device, precision: Precision) -> Callable[[Any], Any] | None:
    """What brings a batch of any nesting to the device and dtype; None where there is nothing to do."""
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
