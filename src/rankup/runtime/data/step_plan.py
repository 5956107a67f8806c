"""How one epoch is cut into steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple, overload

from rankup.runtime.data.order import Order


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
