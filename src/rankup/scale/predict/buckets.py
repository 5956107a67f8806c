"""The buckets that DDP reduces gradients in, from the sizes of a model's parameters.

DDP's rule (torch.nn.parallel.distributed): in the order in which gradients become ready, which is the reverse order of
the parameters, until a bucket has 1 MiB for the first and 25 MiB for all others.
"""

from __future__ import annotations

from collections.abc import Sequence

FIRST = 1024 * 1024
CAP = 25 * 1024 * 1024


def ddp_buckets(parameter_bytes: Sequence[int], first: int = FIRST, cap: int = CAP) -> list[int]:
    """Bytes of each bucket, in the order of their all-reduces. ``parameter_bytes`` in the model's order."""
    buckets: list[int] = []
    size, limit = 0, first
    for count in reversed(parameter_bytes):
        size += count
        if size >= limit:
            buckets.append(size)
            size, limit = 0, cap
    return [*buckets, size] if size else buckets
