"""Tensors in batches and outputs of any nesting."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence


def map_tensors(
    change: Callable[[torch.Tensor], torch.Tensor],
    value: Any,
    other: Callable[[Any], Any] = lambda value: value,
) -> Any:
    """``value`` with every tensor changed; tuples, lists, mappings and dataclasses keep their type.

    Mappings that can be written to are changed in place: outputs and batches of libraries are often mappings with
    attributes of their own. ``other`` is applied to anything else.
    """
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, PackedSequence):  # whose batch sizes belong on the CPU
        indices = (value.sorted_indices, value.unsorted_indices)
        kept = (None if index is None else change(index) for index in indices)
        return PackedSequence(change(value.data), value.batch_sizes, *kept)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(change, item, other) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(change, item, other) for item in value)
    if isinstance(value, MutableMapping):
        for key, item in value.items():
            value[key] = map_tensors(change, item, other)
        return value
    if isinstance(value, Mapping):
        return {key: map_tensors(change, item, other) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            field.name: map_tensors(change, getattr(value, field.name), other)
            for field in dataclasses.fields(value)
            if field.init
        }
        return dataclasses.replace(value, **fields)
    return other(value)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Each tensor in a state: in mappings, lists and tuples of any nesting, in the order of ``map_tensors``."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_in(item)
