"""What an optimizer holds, as ``any_script.py`` compares it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.optim import Optimizer

from rankup.strategies.clipping import local

_NUMBERS = (bool, int, float, str, type(None))


def parameters(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def fields(optimizer: Optimizer, parameter: torch.Tensor) -> dict[str, Any]:
    state = optimizer.state.get(parameter, {})
    return {name: value for name, value in state.items() if isinstance(value, (torch.Tensor, *_NUMBERS))}


def options(optimizer: Optimizer) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in sorted(group.items()) if name != "params"}
        for group in optimizer.param_groups
    ]


def size_of(tensors: list[torch.Tensor]) -> float:
    """The sum of all absolute values, of this rank's part."""
    dense = (local(tensor) for tensor in tensors if not tensor.is_sparse)
    return float(sum(torch.linalg.vector_norm(tensor, 1).item() for tensor in dense))
