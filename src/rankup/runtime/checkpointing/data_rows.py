"""Tensors and arrays that a data set keeps in attributes: its rows, weights of its samples.

A script may shuffle them between epochs, or change them in the loop. Each rank has its own copy, and no snapshot has
one. What a data set keeps of what it has read changes as well: there, zeros and other fill values are written over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import IterableDataset

from rankup.runtime.checkpointing.attributes import within
from rankup.runtime.context import RunContext

_SAMPLED = 256  # numbers of an array
_MOST_ITEMS = 16  # of a list of tensors, such as TensorDataset's
_FEW = 2  # different numbers: fill values, a mask


@dataclass(frozen=True)
class Rows:
    """An array at one time."""

    shape: tuple[int, ...]
    sample: tuple[float, ...]

    def changed(self, now: Rows) -> bool:
        if self.shape != now.shape:
            return True
        written = [old for old, new in zip(self.sample, now.sample, strict=True) if old != new and old == old]
        return len(set(written)) > _FEW


class DataRows:
    """Of one run. ``sets``: its data sets by place."""

    def __init__(self, run: RunContext, sets: Callable[[], Iterator[tuple[str, Any]]]) -> None:
        self._run = run
        self._sets = sets
        self._begun: dict[str, Rows] = {}
        self._trained: dict[str, Rows] = {}  # as the last batch of an epoch was trained

    def begin(self) -> None:
        self._begun = {place: rows_of(array) for place, _, array in self._arrays()}

    def changed(self) -> dict[str, Any]:
        """The arrays that are not registered and hold other numbers than at the beginning, by what a message calls
        them."""
        return self._changed_since(self._begun)

    def epoch_trained(self) -> None:
        """The epoch's last batch is trained."""
        self._trained = {place: rows_of(array) for place, _, array in self._arrays()}

    def changed_between_epochs(self) -> dict[str, Any]:
        """The same of those that the code between two epochs has changed. An array that begins with zeros and is
        filled before each epoch (rollouts) is not a cache of samples."""
        return self._changed_since(self._trained)

    def _changed_since(self, before: dict[str, Rows]) -> dict[str, Any]:
        ours = within(self._run.registered.values())
        return {
            where: array
            for place, where, array in self._arrays()
            if place in before and id(array) not in ours and before[place].changed(rows_of(array))
        }

    def _arrays(self) -> Iterator[tuple[str, str, Any]]:
        """(place, name for a message, array)."""
        for place, data in self._sets():
            if isinstance(data, IterableDataset):  # of which each rank may hold a part
                continue
            for name, value in vars(data).items():
                several = isinstance(value, (list, tuple)) and len(value) <= _MOST_ITEMS
                for number, each in enumerate(value) if several else [(-1, value)]:
                    if _readable(each):
                        at = name if number < 0 else f"{name}[{number}]"
                        yield f"{place} {at}", f"{at} of {type(data).__name__}", each


def rows_of(array: Any) -> Rows:
    flat = array.detach().view(-1) if isinstance(array, torch.Tensor) else array.reshape(-1)
    every = max(1, len(flat) // _SAMPLED)
    return Rows(tuple(array.shape), tuple(flat[::every][:_SAMPLED].tolist()))


def order_free(array: Any) -> int:
    """The same number for the same rows in any order."""
    values = torch.as_tensor(array).detach().contiguous().view(torch.uint8)
    size = 4 if values.shape[-1] % 4 == 0 else 1
    return int((values.view(torch.int32) if size == 4 else values).sum(dtype=torch.int64))


def _readable(value: object) -> bool:
    """A dense array of numbers in memory: of a file that is mapped into memory nothing is read."""
    if type(value) is torch.Tensor:
        dense = value.layout is torch.strided and not (value.is_nested or value.is_quantized)
        return (
            dense
            and value.device.type == "cpu"
            and value.dim() > 0
            and value.numel() > 0
            and value.is_contiguous()
        )
    kind = type(value)
    if kind.__module__ != "numpy" or kind.__name__ != "ndarray":
        return False
    array: Any = value
    return array.dtype.kind in "biuf" and array.ndim > 0 and array.size > 0 and array.flags.c_contiguous
