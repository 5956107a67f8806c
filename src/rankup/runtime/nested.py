"""Tensors in whatever they come in: batches and outputs of any nesting."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import torch


def map_tensors(change: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """``value`` with every tensor changed; tuples, lists, mappings and dataclasses keep their type.

    Mappings that can be written to are changed in place: outputs and batches of libraries are often mappings with
    attributes of their own. What is none of these stays as it is.
    """
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(change, item) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(change, item) for item in value)
    if isinstance(value, MutableMapping):
        for key, item in value.items():
            value[key] = map_tensors(change, item)
        return value
    if isinstance(value, Mapping):
        return {key: map_tensors(change, item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            field.name: map_tensors(change, getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.init
        }
        return dataclasses.replace(value, **fields)
    return value
