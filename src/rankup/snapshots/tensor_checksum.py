"""Checksums of tensors, as fast as a copy of them: they depend on all bits and on their positions.

A plain sum of words does not notice that weights were halved: the same number is subtracted from every exponent, and
the total wraps around to the same value. So each word is multiplied by an odd number that depends on its position.
"""

from __future__ import annotations

import ctypes
import hashlib

import torch

# So many words of eight bytes become one. Odd, like each weight: so the sum of the weights is odd, too.
_ROW = 1023
# Of words of four bytes: CPUs multiply these several at a time.
_WEIGHTS = (
    torch.randint(-(2**30), 2**30, (2 * _ROW,), generator=torch.Generator().manual_seed(1)) * 2 + 1
).int()
_ODD = 0x1E3779B97F4A7C15
# Bytes that are multiplied at a time: what stays in the cache of a CPU, and little of the memory of a GPU.
_AT_ONCE = {"cpu": 1 << 19, "other": 1 << 25}


def checksum(reduced: torch.Tensor) -> str:
    """Of a tensor that was ``reduced``; equal bits give equal checksums."""
    return hashlib.blake2b(as_bytes(reduced.cpu()), digest_size=12).hexdigest()


def reduced(tensor: torch.Tensor) -> torch.Tensor:
    """What a checksum is made of, on the device of the plain ``tensor``: a copy if it is small, else ``row_sums``."""
    if tensor.nbytes < 8 * _ROW:
        return tensor.detach().clone(memory_format=torch.contiguous_format)
    return row_sums(tensor)


def pair(tensor: torch.Tensor) -> torch.Tensor:
    """A shorter checksum, (2,) int64 on the tensor's device: those of many tensors go to the CPU in one transfer."""
    sums = row_sums(tensor)
    places = torch.arange(1, len(sums) + 1, device=sums.device) * _ODD
    mixed = sums ^ (sums >> 32)  # else an even number of changes of the highest bit would add up to nothing
    return torch.stack(((mixed * (places | 1)).sum(), (mixed * ((places >> 20) | 1)).sum()))


def row_sums(tensor: torch.Tensor) -> torch.Tensor:
    """int64, on the device of the plain ``tensor``: a word for each row of words, and the words that fill no row."""
    flat = tensor.detach().contiguous().view(-1).view(torch.uint8)
    if flat.storage_offset() % 8:
        flat = flat.clone()
    whole = len(flat) // 8 * 8
    words, rest = flat[:whole].view(torch.int64), flat[whole:].to(torch.int64)
    full = len(words) // _ROW * _ROW
    rows, weights = words[:full].view(torch.int32).view(-1, 2 * _ROW), _WEIGHTS.to(flat.device)
    some = _AT_ONCE.get(flat.device.type, _AT_ONCE["other"]) // (8 * _ROW)
    product = torch.empty_like(rows[:some])  # one for all: new memory costs more than the product
    sums = torch.empty(len(rows), dtype=torch.int64, device=flat.device)
    for part, into in zip(torch.split(rows, some), torch.split(sums, some), strict=True):
        torch.mul(part, weights, out=product[: len(part)])
        torch.sum(product[: len(part)].view(torch.int64), 1, out=into)
    return torch.cat((sums, words[full:], rest))


def as_bytes(tensor: torch.Tensor) -> memoryview:
    """The memory of a contiguous CPU tensor, of any dtype and without NumPy."""
    size = tensor.numel() * tensor.element_size()
    array = (ctypes.c_ubyte * size).from_address(tensor.data_ptr())
    array.owner = tensor  # type: ignore[attr-defined]  # which lives as long as the view does
    return memoryview(array).cast("B")
