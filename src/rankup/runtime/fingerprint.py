"""A cheap fingerprint of a state, to compare ranks: every byte counts, and large tensors stay where they are."""

from __future__ import annotations

from typing import Any

import torch

from rankup.runtime.digest import digest
from rankup.runtime.nested import map_tensors
from rankup.strategies.clipping import local

SMALL = 64 * 1024  # bytes that are hashed as they are
_ROW = 1024
_AS_INTEGER = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fingerprint(state: Any) -> str:
    """``sha256:…``, equal for equal states. Of a large tensor two sums of its bits count, computed on its device."""
    return f"sha256:{digest(map_tensors(_reduced, copied(state)))}"


def copied(value: Any) -> Any:
    """New dicts and lists of the same tensors: ``map_tensors`` changes mappings in place."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(copied(item) for item in value)
    return value


def _reduced(tensor: torch.Tensor) -> torch.Tensor:
    plain = local(tensor.detach())
    if plain.numel() * plain.element_size() <= SMALL or plain.layout != torch.strided or plain.is_quantized:
        return plain
    plain = torch.view_as_real(plain) if plain.is_complex() else plain
    words = plain.contiguous().flatten().view(_AS_INTEGER[plain.element_size()])
    whole = len(words) // _ROW * _ROW
    rows = words[:whole].view(-1, _ROW).sum(1, dtype=torch.int64)
    weights = torch.arange(1, len(rows) + 1, device=rows.device)
    return torch.stack((rows.sum(), (rows * weights).sum(), words[whole:].sum(dtype=torch.int64)))
