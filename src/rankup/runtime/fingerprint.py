"""A cheap fingerprint of a state, to compare ranks: every byte counts, and large tensors stay where they are."""

from __future__ import annotations

from typing import Any

import torch

from rankup.runtime.digest import digest
from rankup.runtime.nested import map_tensors
from rankup.strategies.clipping import local

SMALL = 64 * 1024  # bytes that are hashed as they are
# 64-bit words that become one. Odd, as each weight is, and so is the sum of the weights: a change that is the same in
# every word of a row, as that of the exponents when weights are halved, must not add up to a power of two.
_ROW = 1023
_WEIGHTS = torch.randint(-(2**62), 2**62, (_ROW,), generator=torch.Generator().manual_seed(1)) * 2 + 1


def fingerprint(state: Any) -> str:
    """``sha256:…``, equal for equal states. A large tensor is reduced on its device, to one word of a thousand."""
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
    raw = plain.contiguous().flatten().view(torch.uint8)
    words = raw[: len(raw) // 8 * 8].view(torch.int64)
    whole = len(words) // _ROW * _ROW
    rows, weights = words[:whole].view(-1, _ROW), _WEIGHTS.to(raw.device)
    # On GPUs there is no product of integer matrices.
    sums = torch.mv(rows, weights) if raw.device.type == "cpu" else (rows * weights).sum(1)
    return torch.cat([sums, words[whole:], raw[len(words) * 8 :].to(torch.int64)])
