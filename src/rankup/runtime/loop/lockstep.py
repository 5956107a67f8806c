"""Evaluation where a forward is a collective (fsdp gathers parameters): every rank must run it equally often."""

from __future__ import annotations

from collections.abc import Sized

from rankup.errors import RankupError


def even_batch(dataset: object, wanted: int, ranks: int) -> int:
    """The smallest global batch from ``wanted`` on whose last batch still has a sample for every rank.

    So each sample is seen once, as everywhere, without fillers that a loop might count.
    """
    length = len(dataset) if isinstance(dataset, Sized) else 0
    if length < ranks:
        raise RankupError(
            "uneven-evaluation",
            f"an evaluation under fsdp needs a data set of known length with {ranks} samples or more, one per process",
            hint="its forward gathers parameters from all ranks: a rank without a batch would leave the others waiting",
        )
    return next(size for size in range(wanted, max(wanted, length) + 1) if not 0 < length % size < ranks)
