"""Hashes of any state, and the size of its numbers. ``digest``: exactly its bits, by SHA-256. ``fingerprint``: cheaper,
since large tensors stay on their device, to compare ranks; every byte counts there, too."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from rankup.runtime.pytree import tensors_in
from rankup.snapshots.tensor_checksum import as_bytes, row_sums
from rankup.strategies.clipping import local

SMALL = 64 * 1024  # bytes that are hashed as they are

_Change = Callable[[torch.Tensor], torch.Tensor]


def digest(value: Any) -> str:
    """Tensors by dtype, shape and bytes, everything else by type and value: equal digests mean equal bit for bit. Of a
    sharded tensor only this rank's part is hashed."""
    return _hashed(value, lambda tensor: tensor)


def fingerprint(state: Any, change: _Change = lambda tensor: tensor) -> str:
    """``sha256:…``, equal for equal states. A large tensor is reduced on its device, a thousand words to one.
    ``change`` is applied to each tensor before."""
    return f"sha256:{_hashed(state, lambda tensor: _reduced(change(tensor)))}"


def rows(value: Any, samples: int) -> list[str]:
    """A short digest of each sample of a batch of any nesting, whose tensors have ``samples`` rows."""
    parts = [tensor for tensor in tensors_in(value) if tensor.dim() > 0 and len(tensor) == samples]
    return [digest([part[row] for part in parts])[:16] for row in range(samples)]


def size_of(tensors: Iterable[torch.Tensor]) -> float:
    """The sum of all absolute values, of this rank's part: it tells a difference in the last digits from another."""
    held = (local(each.detach()) for each in tensors if not each.is_sparse)
    return float(sum(each.abs().sum(dtype=torch.float64).item() for each in held if not each.is_meta))


def _reduced(tensor: torch.Tensor) -> torch.Tensor:
    plain = local(tensor.detach())
    small = plain.numel() * plain.element_size() <= SMALL
    if small or plain.layout != torch.strided or plain.is_quantized or plain.is_meta:
        return plain
    return row_sums(plain)


def _hashed(value: Any, change: _Change) -> str:
    hasher = hashlib.sha256()
    _feed(hasher, value, change)
    return hasher.hexdigest()


def _feed(hasher: Any, value: Any, change: _Change) -> None:
    if isinstance(value, torch.Tensor):
        plain = local(change(value).detach())
        if plain.is_meta:  # it has no values
            _feed(hasher, ("meta", str(plain.dtype), list(plain.shape)), change)
            return
        plain = plain.cpu()
        if plain.layout == torch.sparse_coo:
            plain = plain.coalesce()
            _feed(hasher, ("sparse", list(plain.shape), plain.indices(), plain.values()), lambda part: part)
            return
        plain = (plain if plain.layout == torch.strided else plain.to_dense()).contiguous()
        hasher.update(f"tensor {plain.dtype} {tuple(plain.shape)};".encode())
        if plain.numel():
            hasher.update(as_bytes(plain))
    elif isinstance(value, Mapping):
        for key in value:
            hasher.update(f"key {key!r};".encode())
            _feed(hasher, value[key], change)
    elif isinstance(value, (list, tuple)):
        hasher.update(f"{len(value)} items;".encode())
        for item in value:
            _feed(hasher, item, change)
    elif isinstance(value, (set, frozenset)):
        _feed(hasher, sorted(value, key=repr), change)
    elif isinstance(value, float):
        hasher.update(f"float {value.hex()};".encode())
    elif value is None or isinstance(value, (bool, int, str, bytes, complex)):
        hasher.update(f"{type(value).__name__} {value!r};".encode())
    else:
        hasher.update(f"{type(value).__qualname__};".encode())  # its repr may hold an address
