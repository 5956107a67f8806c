"""How a global batch is divided, which part belongs to this rank, and which rank reports its results."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass

from rankup.errors import RankupError


@dataclass(frozen=True)
class BatchPlan:
    """Of one rank. As it is made without arguments: one process, which has all of each batch.

    ``replica`` of ``replicas``: which contiguous share of each global batch this rank has, and of how many. All ranks
    have a share each, or, where ``shared``, all work on the same batch: then there is one replica, and one rank only
    ``reports`` the numbers of that batch. ``parts``: how many parts each global batch is cut into whatever the number
    of replicas (virtual shards); 0 for one per replica.
    """

    replica: int = 0
    replicas: int = 1
    parts: int = 0
    shared: bool = False
    reports: bool = True

    @property
    def smallest_batch(self) -> int:
        """The smallest global batch that has a sample for every replica and part."""
        return max(self.replicas, self.parts)

    def pieces(self, total: int, micro_batches: int) -> list[tuple[int, int, int]]:
        """(number, start, stop) of what this rank computes on at once in a global batch of ``total`` samples: its
        micro-batches, or its parts. A piece may be empty."""
        if self.parts:
            mine = range(*share(self.parts, self.replica, self.replicas))
            return [(part, *share(total, part, self.parts)) for part in mine]
        low, high = share(total, self.replica, self.replicas)
        cuts = (share(high - low, part, micro_batches) for part in range(micro_batches))
        return [(part, low + start, low + stop) for part, (start, stop) in enumerate(cuts)]


def equal_batches(strategy: str, samples: int | None, wanted: int, ranks: int) -> int:
    """The smallest global batch from ``wanted`` on whose last batch still has a sample for every rank: then all ranks
    of an evaluation get equally many batches.

    So each sample is seen once, as everywhere, without dummy batches that a loop might count.
    """
    if samples is None or samples < ranks:
        raise RankupError(
            "uneven-evaluation",
            f"an evaluation under {strategy} needs a data set of known length with {ranks} samples or more, one per "
            "process",
            hint="its forward gathers parameters from all ranks: a rank without a batch would leave the others waiting",
        )
    return next(size for size in range(wanted, max(wanted, samples) + 1) if not 0 < samples % size < ranks)


def length_of(dataset: object) -> int | None:
    """Its number of samples, if that is known."""
    return len(dataset) if isinstance(dataset, Sized) else None


def share(total: int, index: int, among: int) -> tuple[int, int]:
    """Half-open bounds of part ``index`` of ``total`` things; the first ``total % among`` parts hold one more."""
    size, more = divmod(total, among)
    start = index * size + min(index, more)
    return start, start + size + (index < more)
