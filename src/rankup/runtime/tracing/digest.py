"""SHA-256 of any state: tensors by dtype, shape and bytes, everything else by type and value."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch

from rankup.snapshots.shards import as_bytes
from rankup.strategies.clipping import local


def digest(value: Any) -> str:
    """Equal digests mean equal bit for bit. Of a sharded tensor only this rank's part is hashed."""
    hasher = hashlib.sha256()
    _feed(hasher, value)
    return hasher.hexdigest()


def rows(value: Any, samples: int) -> list[str]:
    """A short digest of each sample of a batch of any nesting, whose tensors have ``samples`` rows."""
    parts = [tensor for tensor in _tensors(value) if tensor.dim() > 0 and len(tensor) == samples]
    return [digest([part[row] for part in parts])[:16] for row in range(samples)]


def _feed(hasher: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        plain = local(value.detach())
        if plain.is_meta:  # it has no values
            _feed(hasher, ("meta", str(plain.dtype), list(plain.shape)))
            return
        plain = plain.cpu()
        if plain.layout == torch.sparse_coo:
            plain = plain.coalesce()
            _feed(hasher, ("sparse", list(plain.shape), plain.indices(), plain.values()))
            return
        plain = (plain if plain.layout == torch.strided else plain.to_dense()).contiguous()
        hasher.update(f"tensor {plain.dtype} {tuple(plain.shape)};".encode())
        if plain.numel():
            hasher.update(as_bytes(plain))
    elif isinstance(value, Mapping):
        for key in value:
            hasher.update(f"key {key!r};".encode())
            _feed(hasher, value[key])
    elif isinstance(value, (list, tuple)):
        hasher.update(f"{len(value)} items;".encode())
        for item in value:
            _feed(hasher, item)
    elif isinstance(value, (set, frozenset)):
        _feed(hasher, sorted(value, key=repr))
    elif isinstance(value, float):
        hasher.update(f"float {value.hex()};".encode())
    elif value is None or isinstance(value, (bool, int, str, bytes, complex)):
        hasher.update(f"{type(value).__name__} {value!r};".encode())
    else:
        hasher.update(f"{type(value).__qualname__};".encode())  # its repr may hold an address


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    return []
