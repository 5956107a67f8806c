"""Checksums of tensors, fast enough for every save: all bits count, and about where they lie."""

from __future__ import annotations

import hashlib

import torch

from rankup.snapshots.shards import as_bytes

_ROW = 1024  # words of eight bytes


def checksum(tensor: torch.Tensor) -> str:
    """Of a plain tensor on any device, at the speed of its memory; equal bits give equal checksums."""
    sums = _row_sums(tensor).cpu()
    return hashlib.blake2b(as_bytes(sums), digest_size=12).hexdigest()


def pair(tensor: torch.Tensor) -> torch.Tensor:
    """A shorter checksum, (2,) int64 on the tensor's device: those of many tensors travel to the CPU together."""
    sums = _row_sums(tensor)
    return torch.stack((sums.sum(), (sums * torch.arange(1, len(sums) + 1, device=sums.device)).sum()))


def _row_sums(tensor: torch.Tensor) -> torch.Tensor:
    """int64, on the tensor's device: the sum of each row of words; of a short tensor, each word."""
    flat = tensor.detach().contiguous().view(-1).view(torch.uint8)
    if flat.storage_offset() % 8:
        flat = flat.clone()
    whole = len(flat) // 8 * 8
    words, rest = flat[:whole].view(torch.int64), flat[whole:].to(torch.int64)
    if len(words) < 4 * _ROW:
        return torch.cat((words, rest))
    rows = len(words) // _ROW * _ROW
    return torch.cat((words[:rows].view(-1, _ROW).sum(1), words[rows:], rest))
