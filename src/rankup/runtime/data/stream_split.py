"""Who splits a stream over ranks and loader workers, and whether each sample is handed out once.

A *reader* is one loader worker of one rank, or the rank itself without workers. rankup splits by taking every k-th
sample; over what the data set splits itself, rankup does not. Each reader reports how the stream begins for it
(``StreamStart``) and what it has read in the end (``StreamEnd``). All ranks gather these reports and compare them.
Pure functions: no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rankup.errors import RankupError

# What ``sharded=`` of prepare and batches may be.
SHARDED = (None, False, True, "workers", "ranks")

_CHOICES = "sharded=True (over ranks and workers), 'workers', 'ranks', or False (nobody)"


class Reader(NamedTuple):
    rank: int
    world_size: int
    worker: int
    workers: int

    def __str__(self) -> str:
        return f"rank {self.rank}" + (f" worker {self.worker}" if self.workers > 1 else "")

    @property
    def number(self) -> int:
        """Ranks first, so that few shards, or few samples, are spread over all ranks."""
        return self.worker * self.world_size + self.rank

    def shown(self, sharded: Any) -> tuple[int, int] | None:
        """(id, num_workers) for the data set; None if it is to see a process that is no loader worker."""
        if sharded == "workers":
            shown = self.number, self.world_size * self.workers
        else:
            shown = (self.worker, self.workers) if sharded in (None, True) else (0, 1)
        return shown if shown[1] > 1 else None


class Split(NamedTuple):
    """Over what rankup splits the stream that a reader sees."""

    ranks: bool
    workers: bool

    @classmethod
    def of(cls, sharded: Any, asked: bool) -> Split:
        """``asked``: a data set that asks which worker it is splits over the workers, if nothing is declared."""
        undeclared = sharded is None and not asked
        return cls(sharded in (None, False), undeclared or sharded in (False, "ranks"))

    def stripe(self, reader: Reader) -> tuple[int, int]:
        """(first, step) of the samples that ``reader`` hands out."""
        first, step = (reader.worker, reader.workers) if self.workers else (0, 1)
        return (
            (first * reader.world_size + reader.rank, step * reader.world_size)
            if self.ranks
            else (first, step)
        )

    def part(self, reader: Reader) -> tuple[int, int]:
        """The part of the data set that ``reader`` sees; readers of one part see the same samples."""
        return -1 if self.ranks else reader.rank, -1 if self.workers else reader.worker


class StreamStart(NamedTuple):
    """How a pass begins for one reader. ``first``: digests of its first samples; None after a resume. ``redone``: then,
    the last step that was done, made again; ``same``: whether it has the samples that it had."""

    reader: Reader
    asked: bool
    first: tuple[str, ...] | None
    redone: Any = None
    same: bool = True


class StreamEnd(NamedTuple):
    """What a reader has read: samples, a digest of some of them, and whether the data set asked which worker it is."""

    reader: Reader
    asked: bool
    read: int
    digest: str


def check_sharded(sharded: Any) -> None:
    if not any(sharded is value or (isinstance(value, str) and sharded == value) for value in SHARDED):
        raise RankupError(
            "bad-sharded",
            f"sharded={sharded!r} is not valid",
            hint=f"say over what the data set splits itself: {_CHOICES}; or None",
        )


def check_starts(starts: Sequence[StreamStart], sharded: Any) -> None:
    """An error before the first step if samples would be lost or handed out twice."""
    split = Split.of(sharded, starts[0].asked)
    if sharded == "workers" and len(starts) > 1 and not any(start.asked for start in starts):
        raise _repeated(
            "all readers", "a data set that never asks which worker it is does not split over workers"
        )
    parts: dict[tuple[int, int], StreamStart] = {}
    for start in starts:
        if sharded is None and start.asked != starts[0].asked:
            raise _differ(
                starts[0].reader, start.reader, "it asks only one of them which loader worker it is"
            )
        one = parts.setdefault(split.part(start.reader), start)
        if None not in (one.first, start.first) and one.first != start.first:
            raise _differ(one.reader, start.reader, "it does not begin with the same samples")
    seen: dict[tuple[str, ...], StreamStart] = {}
    for start in parts.values():
        if start.first is None or len(set(start.first)) < 2:  # equal samples prove nothing
            continue
        one = seen.setdefault(start.first, start)
        if one is not start:
            raise _repeated(f"{one.reader} and {start.reader}", "the data set gives both the same part")


def check_pass(ends: Sequence[StreamEnd], handed: int, sharded: Any, asked: bool) -> None:
    """An error after a pass that every rank completed, unless each sample that was read was handed out once."""
    if sharded is None and any(end.asked != asked for end in ends):
        raise RankupError(
            "stream-miscounted",
            "the data set asked which loader worker it is only later in the stream: of what it split from there on "
            "only a part was seen",
            hint=f"call get_worker_info() before the first sample, or declare over what it splits: {_CHOICES}",
            exit_code=1,
        )
    split = Split.of(sharded, asked)
    parts: dict[tuple[int, int], StreamEnd] = {}
    for end in ends:
        one = parts.setdefault(split.part(end.reader), end)
        if one.read != end.read:
            raise _differ(one.reader, end.reader, f"{one.read} and {end.read} samples were read")
        if one.digest != end.digest:
            raise _differ(one.reader, end.reader, f"{end.read} samples each were read, in different order")
    whole = sum(end.read for end in parts.values())
    if handed != whole:
        raise RankupError(
            "stream-miscounted",
            f"the stream has {whole} samples, and {handed} were handed out over all ranks: {off_by(handed, whole)}",
            hint=f"declare over what the data set splits itself: {_CHOICES}",
            exit_code=1,
        )


def off_by(handed: int, whole: int) -> str:
    return f"{whole - handed} are missing" if handed < whole else f"{handed - whole} too many"


def _differ(one: Reader, other: Reader, what: str) -> RankupError:
    return RankupError(
        "streams-differ",
        f"the stream is not the same on {one} and {other}: {what}. Samples would be lost or seen twice",
        context="the data set splits over ranks itself (split_by_node, split_dataset_by_node, its own use of RANK), or "
        "shuffles with a generator of its own",
        hint=f"declare over what it splits itself: {_CHOICES}; or shuffle with the global generators, which rankup "
        "seeds alike on all ranks, or with a fixed seed",
        exit_code=1,
    )


def _repeated(who: str, why: str) -> RankupError:
    return RankupError(
        "streams-repeat",
        f"{who} would hand out the same samples: {why}",
        hint=f"declare over what the data set splits itself: {_CHOICES}; or leave sharded= out",
        exit_code=1,
    )
