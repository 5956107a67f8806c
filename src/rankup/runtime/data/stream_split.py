"""Who splits a stream over ranks and loader workers: the data set itself, or rankup by taking every k-th sample.

A *reader* is one loader worker of one rank (or the rank itself, without workers). Each reader reports how the stream
begins for it (``StreamStart``). All ranks gather the reports and come to the same decision (``decide``). Pure
functions: no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from rankup.errors import RankupError

# What ``sharded=`` of prepare and batches may be.
SHARDED = (None, False, True, "workers", "ranks")

WAYS_OUT = (
    "shuffle with the global generators (rankup seeds them alike on all ranks) or with a fixed seed; or declare who "
    "splits: sharded=True (the data set, over ranks and workers), 'ranks', 'workers', or False (nobody)"
)


class Split(IntEnum):
    """What a reader hands out of the stream that it sees."""

    STRIPE = 0  # every k-th sample, over all readers
    OWN = 1  # all of it: the data set has split
    OVER_RANKS = 2  # every k-th sample, over ranks: the data set has split over workers
    OVER_WORKERS = 3  # every k-th sample, over the workers of this rank: the data set has split over ranks


@dataclass(frozen=True)
class Reader:
    rank: int
    world_size: int
    worker: int
    workers: int

    def __str__(self) -> str:
        return f"rank {self.rank}" + (f" worker {self.worker}" if self.workers > 1 else "")

    @property
    def count(self) -> int:
        return self.world_size * self.workers

    @property
    def number(self) -> int:
        """Ranks first, so that few shards, or few samples, are spread over all ranks."""
        return self.worker * self.world_size + self.rank

    def shown(self, sharded: Any, split: Split | None) -> tuple[int, int] | None:
        """(id, num_workers) to present to the data set; None leaves torch's own answer."""
        if self.count == 1 or sharded is True:
            return None
        if split is Split.OVER_RANKS:
            return self.worker, self.workers
        return (self.number, self.count) if sharded in (None, "workers") else (0, 1)

    def stripe(self, split: Split) -> tuple[int, int]:
        """(first, step) of the samples to hand out."""
        return {
            Split.STRIPE: (self.number, self.count),
            Split.OWN: (0, 1),
            Split.OVER_RANKS: (self.rank, self.world_size),
            Split.OVER_WORKERS: (self.worker, self.workers),
        }[split]


@dataclass(frozen=True)
class StreamStart:
    """How the stream begins for one reader. ``first``: digests of its first samples; ``alone``: of those that it would
    give to the only reader, None if not tested; ``repeats``: whether a second iterator begins in the same way."""

    reader: Reader
    asked: bool
    first: tuple[str, ...]
    alone: tuple[str, ...] | None = None
    repeats: bool = True
    failed: bool = False


def check_sharded(sharded: Any) -> None:
    if not any(sharded is value or (isinstance(value, str) and sharded == value) for value in SHARDED):
        raise RankupError(
            "bad-sharded",
            f"sharded={sharded!r} is not valid",
            hint="None (rankup finds out), False (nobody splits), True (the data set, over ranks and workers), "
            "'workers' (over workers only) or 'ranks' (over ranks only)",
        )


def known(sharded: Any, readers: int) -> Split | None:
    """The split, if it follows without looking at the data set."""
    if readers == 1:
        return Split.OWN
    return Split.STRIPE if sharded is False else None


def decide(looks: Sequence[StreamStart], sharded: Any) -> Split:
    """The split of a pass, from the reports of all readers. Raises RankupError if samples would be lost or doubled.

    ``sharded``: as declared; None to find out.
    """
    ranks = looks[0].reader.world_size
    if all(look.failed for look in looks):
        return Split.OWN  # the data set's own error is raised where it is read
    if sharded is True:
        _check_repeated(looks, "although sharded=True says that the data set splits over ranks and workers")
        return Split.OWN
    if sharded == "ranks":
        _check_same(looks, lambda reader: reader.rank)
        _check_repeated(
            looks, "although sharded='ranks' says that the data set splits over ranks", ranks=True
        )
        return Split.OVER_WORKERS
    if not any(look.asked for look in looks):
        if sharded == "workers" and not _same(looks):
            _check_same(looks, lambda reader: reader.worker)
            return Split.OVER_RANKS
        _check_same(looks, lambda reader: 0)
        return Split.STRIPE
    if _same(looks) and len(set(looks[0].first)) > 1:
        return Split.STRIPE  # it asks which worker it is, and gives the same to all
    if ranks > 1 and sharded is None:
        _check_alone(looks)
    without = [
        rank for rank in range(ranks) if not any(look.first for look in looks if look.reader.rank == rank)
    ]
    if ranks > 1 and (without or any(look.failed for look in looks)):
        return Split.OVER_RANKS  # fewer shards than readers: each rank reads all of them
    _check_repeated(looks, "so they are not split over all readers")
    return Split.OWN


def _same(looks: Sequence[StreamStart]) -> bool:
    return all(look.first == looks[0].first for look in looks)


def _check_same(looks: Sequence[StreamStart], group: Callable[[Reader], int]) -> None:
    """An error if readers of one group do not begin with the same samples."""
    begins: dict[int, StreamStart] = {}
    for look in looks:
        other = begins.setdefault(group(look.reader), look)
        if other.first != look.first and not (other.failed or look.failed):
            raise RankupError(
                "streams-differ",
                f"the stream does not begin with the same samples on {other.reader} and {look.reader}: samples "
                "would be lost or seen twice",
                context="the data set shuffles with a generator of its own, or splits over ranks itself",
                hint=WAYS_OUT,
                exit_code=1,
            )


def _check_alone(looks: Sequence[StreamStart]) -> None:
    """An error if the data set also splits over ranks, or if that is unknown."""
    if any(not look.repeats for look in looks):
        raise RankupError(
            "streams-unclear",
            "the data set splits over loader workers, and begins with other samples each time it is iterated: rankup "
            "cannot find out whether it splits over ranks too",
            context="it shuffles with an unseeded generator or by a count of its own, or can be iterated only once",
            hint="sharded=True if it splits over ranks and workers, sharded='workers' if over workers only; or give "
            "its shuffle a seed",
            exit_code=1,
        )
    alone = [look for look in looks if look.alone is not None]
    for look in alone:
        if look.alone != alone[0].alone:
            raise RankupError(
                "streams-differ",
                f"the data set splits over loader workers, and gives {alone[0].reader} and {look.reader} other "
                "samples besides: split twice, samples would be lost",
                context="it splits over ranks too (split_by_node, split_dataset_by_node, its own use of RANK), or "
                "shuffles with a generator of its own",
                hint="sharded=True if it splits over ranks and workers; sharded='workers' if over workers only; else "
                "give its shuffle a fixed seed",
                exit_code=1,
            )


def _check_repeated(looks: Sequence[StreamStart], but: str, *, ranks: bool = False) -> None:
    """An error if two readers (two ranks, with ``ranks``) begin with the same samples, one data set read twice."""
    seen: dict[tuple[str, ...], StreamStart] = {}
    for look in looks:
        if len(set(look.first)) < 2 or (ranks and look.reader.worker > 0):
            continue
        other = seen.setdefault(look.first, look)
        if other is not look:
            raise RankupError(
                "streams-repeat",
                f"{other.reader} and {look.reader} read the same samples, {but}",
                hint="leave sharded= out, and rankup finds out who splits; 'workers' if the data set splits over "
                "loader workers only, 'ranks' if over ranks only",
                exit_code=1,
            )
