"""Training on an ``IterableDataset``, whose length and order nobody knows: without the exactness promise.

Each rank and worker takes every k-th sample of the stream. Before each step the ranks add up what they hold: the sum
weighs their gradients, and zero ends the epoch, so that a rank whose part ends early keeps the others company with
fillers instead of leaving them in a collective. The sum for the next step travels while this one computes.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info

from rankup.core.share import share
from rankup.errors import RankupError
from rankup.runtime.loaders import Batch, dismiss_at_exit, loader_options, mover
from rankup.runtime.position import Position
from rankup.runtime.precision import Precision
from rankup.runtime.seed import derive


class StreamFeed:
    """``global_batch`` samples per step over all ranks while every rank has enough; fewer near the end.

    ``sharded`` says that the data set itself already gives every rank and worker samples of its own.
    """

    steps = None

    def __init__(
        self,
        dataset: IterableDataset[Any],
        global_batch: int,
        rank: int,
        world_size: int,
        seed: int,
        device: torch.device,
        precision: Precision,
        control: dist.ProcessGroup | None,
        *,
        parts: int = 1,
        fill: bool = True,
        sharded: bool = False,
        loader: dict[str, Any] | None = None,
    ) -> None:
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
        stripes = None if sharded else (rank, world_size)
        self._generator = torch.Generator()
        self._loader: DataLoader[Any] = DataLoader(
            _Striped(dataset, stripes, stop - start, parts, collate),
            batch_size=None,
            generator=self._generator,
            collate_fn=_as_is,
            **options,
        )
        dismiss_at_exit(self._loader)
        self._seed = derive(seed, "stream", rank)
        self._control = control
        self._move = mover(device, precision)
        self._fill = fill
        self._rank = rank
        self.cut: dict[str, int | None] = {"length": None, "global_batch": global_batch, "accumulate": parts}

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        self._generator.manual_seed(derive(self._seed, epoch))
        local = itertools.islice(iter(self._loader), start, None)
        if self._fill and self._control is not None:
            yield from self._in_step(local, self._control)
            return
        for pieces in local:
            total = sum(count for _, count in pieces)
            for number, (value, count) in enumerate(pieces):
                if count or self._fill:
                    yield Batch(self._place(value), count, total, number == len(pieces) - 1)

    def _in_step(self, local: Iterator[Any], control: dist.ProcessGroup) -> Iterator[Batch]:
        filler: Any = None
        pieces, total, work = self._announce(local, control)
        while True:
            work.wait()
            held, held_total = pieces, int(total.item())
            if held_total == 0:
                return
            if held is None:
                if filler is None:
                    raise RankupError(
                        "stream-too-short",
                        f"rank {self._rank} got no sample at all from the stream while others did",
                        hint="the stream is shorter than the number of ranks times loader workers",
                        exit_code=1,
                    )
                held = [(value, 0) for value, _ in filler]
            filler = held
            pieces, total, work = self._announce(local, control)  # the next step's, while this one computes
            for number, (value, count) in enumerate(held):
                yield Batch(self._place(value), count, held_total, number == len(held) - 1)

    def _announce(
        self, local: Iterator[Any], control: dist.ProcessGroup
    ) -> tuple[Any, torch.Tensor, dist.Work]:
        pieces = next(local, None)
        total = torch.tensor(sum(count for _, count in pieces) if pieces else 0)
        work = dist.all_reduce(total, group=control, async_op=True)
        assert work is not None
        return pieces, total, work

    def _place(self, value: Any) -> Any:
        return value if self._move is None else self._move(value)


class _Striped(IterableDataset[Any]):
    """Lists of (collated part, samples in it), one list per step; a part without samples repeats the first."""

    def __init__(
        self,
        dataset: IterableDataset[Any],
        stripes: tuple[int, int] | None,
        size: int,
        parts: int,
        collate: Callable[[list[Any]], Any],
    ) -> None:
        self._dataset = dataset
        self._stripes = stripes
        self._size = size
        self._parts = parts
        self._collate = collate

    def __iter__(self) -> Iterator[list[tuple[Any, int]]]:
        samples = iter(self._dataset)
        if self._stripes is not None:
            rank, world_size = self._stripes
            info = get_worker_info()
            worker, workers = (info.id, info.num_workers) if info else (0, 1)
            samples = itertools.islice(samples, rank * workers + worker, None, world_size * workers)
        while chunk := list(itertools.islice(samples, self._size)):
            pieces = []
            for part in range(self._parts):
                a, b = share(len(chunk), part, self._parts)
                pieces.append((self._collate(chunk[a:b] or chunk[:1]), b - a))
            yield pieces


def _as_is(value: Any) -> Any:
    return value
