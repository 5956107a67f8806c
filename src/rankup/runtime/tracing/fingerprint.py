"""A cheap fingerprint of a state, to compare ranks: every byte counts, and large tensors stay on their device."""

from __future__ import annotations

from typing import Any

import torch

from rankup.runtime.pytree import map_tensors
from rankup.runtime.tracing.digest import digest
from rankup.snapshots.checksum import row_sums
from rankup.strategies.clipping import local

SMALL = 64 * 1024  # bytes that are hashed as they are


def fingerprint(state: Any) -> str:
    """``sha256:…``, equal for equal states. A large tensor is reduced on its device, a thousand words to one."""
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
    small = plain.numel() * plain.element_size() <= SMALL
    if small or plain.layout != torch.strided or plain.is_quantized or plain.is_meta:
        return plain
    return row_sums(plain)
