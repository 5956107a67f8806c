"""The order of an epoch's samples: which sample stands at which position, the same on every rank; and how it is cut
into steps.

Orders are asked for spans of positions, so that a rank computes its own share of a large data set and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple, Protocol, overload

import torch

from rankup.runtime.seed import derive

Span = tuple[int, int]  # half-open

#: Up to so many samples an order is drawn by ``torch.randperm``: 8 MiB. More are computed where they are asked for.
DRAWN = 2**20
_BLOCK = 2**14  # numbers that are computed at once, so that all between two operations stays in the cache
_ROUNDS = 6  # with 4, neighbours in a column are told from chance
# Odd, below 2³¹. Times a number below 2³¹ they fit into 62 bits: no operation overflows.
_FIRST, _SECOND = 0x5851F42D, 0x2C1B3C6D


class Order(Protocol):
    def __len__(self) -> int: ...

    def rows(self, spans: Sequence[Span]) -> torch.Tensor:
        """int64: what stands at the positions of all spans, one span after another."""
        ...

    def on(self, device: torch.device) -> Order:
        """The same there, for data that is there as a whole: without a copy at each step."""
        ...


def all_rows(order: Order) -> torch.Tensor:
    """int64 (samples,): all of it."""
    return order.rows([(0, len(order))])


def shuffled(length: int, seed: int) -> Order:
    """All samples in an order of the seed."""
    if length > DRAWN:
        return Shuffled(length, seed)
    return Listed(torch.randperm(length, generator=torch.Generator().manual_seed(seed)))


class Listed:
    """Of a tensor: int64 (samples,)."""

    def __init__(self, numbers: torch.Tensor) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def rows(self, spans: Sequence[Span]) -> torch.Tensor:
        spans = _joined(spans)
        if len(spans) == 1:
            return self.numbers[slice(*spans[0])]  # a view
        return torch.cat([self.numbers[start:stop] for start, stop in spans])

    def on(self, device: torch.device) -> Order:
        return Listed(self.numbers.to(device))


class Sequential:
    """Each sample at its own position."""

    def __init__(self, length: int, device: torch.device | None = None) -> None:
        self._length = length
        self._device = device

    def __len__(self) -> int:
        return self._length

    def rows(self, spans: Sequence[Span]) -> torch.Tensor:
        # By few operations: a rank of many has a span for each of thousands of steps.
        count = sum(stop - start for start, stop in spans)
        starts, stops = torch.tensor(_joined(spans), device=self._device).unbind(1)
        lengths = stops - starts
        shifts = starts - lengths.cumsum(0) + lengths
        shifts = torch.repeat_interleave(shifts, lengths, output_size=count)
        return shifts.add_(torch.arange(count, device=self._device))

    def on(self, device: torch.device) -> Order:
        return Sequential(self._length, device)


class Shuffled:
    """A keyed pseudo-random permutation of up to 2⁶¹ samples, in constant memory: a Feistel network.

    A position is a row and a column of a table that is about as high as wide. In turns, a hash of the one moves the
    other, modulo its size: each round can be undone, so all are a permutation of the table's cells. A result behind the
    last sample, in the last row, is permuted again until it is a sample (cycle walking; Black and Rogaway, Ciphers with
    Arbitrary Finite Domains, 2002).
    """

    def __init__(self, length: int, seed: int) -> None:
        self._length = length
        # Of a column: a power of two of them needs no division.
        self._bits = math.isqrt(length - 1).bit_length()
        self._table_rows = -(-length >> self._bits)
        # Of 62 bits, since a hash adds one to a number as large.
        keys = [derive(seed, number) >> 1 for number in range(_ROUNDS)]
        self._keys = torch.tensor(keys).unbind()

    def __len__(self) -> int:
        return self._length

    def rows(self, spans: Sequence[Span]) -> torch.Tensor:
        positions = Sequential(self._length).rows(spans)
        for block in torch.split(positions, _BLOCK):
            block.copy_(self._permuted(block))
            while len(outside := (block >= self._length).nonzero().flatten()):
                block[outside] = self._permuted(block[outside])
        return positions

    def on(self, device: torch.device) -> Order:
        return Listed(all_rows(self).to(device))

    def _permuted(self, cells: torch.Tensor) -> torch.Tensor:
        bits, size = self._bits, self._table_rows
        row, column = cells >> bits, cells & (2**bits - 1)
        for first, second in zip(self._keys[::2], self._keys[1::2], strict=True):
            # From 32 bits to less than ``size``, and the sum back into its range, without a division.
            by = _hashed(column, first).bitwise_and_(2**32 - 1).mul_(size).bitwise_right_shift_(32)
            row = by.add_(row).sub_(size)
            row.add_((row >> 63).bitwise_and_(size))
            column = _hashed(row, second).add_(column).bitwise_and_(2**bits - 1)
        return row.bitwise_left_shift_(bits).bitwise_or_(column)


def _hashed(half: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Less than 2⁶², its lower 32 bits mixed; for ``half`` below 2³¹ and ``key`` below 2⁶²."""
    hashed = torch.add(key, half, alpha=_FIRST)
    hashed.bitwise_xor_(hashed >> 31).bitwise_and_(2**31 - 1).mul_(_SECOND)
    return hashed.bitwise_xor_(hashed >> 29)


def _joined(spans: Sequence[Span]) -> Sequence[Span]:
    """As one where they follow each other, as those of one process do. Never what lies between them, which is the other
    ranks'."""
    follow = all(before[1] == after[0] for before, after in pairwise(spans))
    return [(spans[0][0], spans[-1][1])] if follow else spans


class StepPlan(NamedTuple):
    """One epoch. ``order``: the numbers of its samples in the data set; step ``k`` has those from ``starts[k]`` to
    ``starts[k + 1]``. ``keys``: what each sample's random numbers are keyed on."""

    order: Order
    starts: Sequence[int]
    keys: Order

    @property
    def steps(self) -> int:
        return len(self.starts) - 1

    def first(self, steps: int | None) -> StepPlan:
        """Its first ``steps`` steps; None: all of them."""
        return self if steps is None else self._replace(starts=self.starts[: steps + 1])

    def total(self, step: int) -> int:
        """Samples in global batch ``step``."""
        return self.starts[step + 1] - self.starts[step]

    def totals(self) -> tuple[set[int], int]:
        """Samples of the steps before the last one, each number once, and of the last one."""
        equal = isinstance(self.starts, (range, _ShortLast))
        before = range(min(1, self.steps - 1) if equal else self.steps - 1)
        return {self.total(step) for step in before}, self.total(self.steps - 1)


def cuts(length: int, global_batch: int, *, drop_last: bool) -> Sequence[int]:
    """Where the steps of an epoch of ``length`` samples begin, and where the last one ends. In constant memory."""
    whole = range(0, length + 1, global_batch)
    return whole if drop_last or length % global_batch == 0 else _ShortLast(whole, length)


class _ShortLast(Sequence[int]):
    """``[*whole, end]``."""

    def __init__(self, whole: range, end: int) -> None:
        self._whole, self._end = whole, end

    def __len__(self) -> int:
        return len(self._whole) + 1

    def __iter__(self) -> Iterator[int]:
        return chain(self._whole, [self._end])

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[int]: ...
    def __getitem__(self, at: int | slice) -> int | Sequence[int]:
        if isinstance(at, slice):
            kept = range(len(self))[at]
            return self._whole[at] if len(self._whole) not in kept else _ShortLast(self._whole[at], self._end)
        return self._end if range(len(self))[at] == len(self._whole) else self._whole[at]
