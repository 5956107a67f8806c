"""Was each sample of a stream handed out once?

After a pass each reader reports how much it read (``StreamEnd``), and ``check_pass`` compares all reports. A pass that
a resume continues is compared with its beginning (``other_opening``). Pure functions: no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from rankup.errors import RankupError
from rankup.runtime.data.stream_split import WAYS_OUT, Reader, Split


@dataclass(frozen=True)
class StreamEnd:
    """The end of a stream for one reader: samples read, a digest of some of them, and whether the data set asked which
    worker it is only after its first samples."""

    reader: Reader
    read: int
    digest: str
    asked_late: bool


class StreamOpening(TypedDict):
    """Of one rank: ``readers`` are the number of processes and of loader workers of each; empty if another number of
    processes saved it. ``first``: digests of the first samples of each worker."""

    readers: list[int]
    first: list[list[str]]


def other_opening(saved: StreamOpening, now: StreamOpening, done: int) -> str | None:
    """A warning if the ``done`` steps that a resume skips do not consist of the samples that were trained on."""
    if saved["readers"] != now["readers"]:
        why = "it was read by another number of processes or loader workers, which get its samples in another order"
        way = "a map-style Dataset has one order on any number of them"
    elif saved["first"] != now["first"]:
        why = "it begins with other samples than before"
        way = "shuffle it with the global generators, or by its set_epoch(epoch)"
    else:
        return None
    return (
        f"this epoch is resumed after its step {done}, and the samples of the stream that are skipped are not those "
        f"that were trained on: {why}. Some samples of this epoch are seen twice, and some not at all; {way}"
    )


def check_pass(split: Split, ends: Sequence[StreamEnd], handed: int, sharded: Any) -> None:
    """After a pass that every rank completed: an error unless each sample was handed out once, as far as is known."""
    if split is Split.OWN or not ends:
        return
    if sharded is None and any(end.asked_late for end in ends):
        raise RankupError(
            "stream-miscounted",
            "the data set asked which loader worker it is only later in the stream: of what it split from there on "
            "only a part was seen",
            hint="call get_worker_info() before the first sample, or declare who splits (sharded=)",
            exit_code=1,
        )
    groups: dict[int, list[StreamEnd]] = {}
    for end in ends:
        key = (
            0
            if split is Split.STRIPE
            else getattr(end.reader, "worker" if split is Split.OVER_RANKS else "rank")
        )
        groups.setdefault(key, []).append(end)
    for group in groups.values():
        for end in group:
            if (end.read, end.digest) != (group[0].read, group[0].digest):
                raise _differ_at_end(group[0], end, handed)
    whole = sum(group[0].read for group in groups.values())
    if handed != whole:
        raise RankupError(
            "stream-miscounted",
            f"the stream has {whole} samples, and {handed} were handed out over all ranks: {_off(handed, whole)}",
            hint="declare who splits (sharded=)",
            exit_code=1,
        )


def _differ_at_end(a: StreamEnd, b: StreamEnd, handed: int) -> RankupError:
    if a.read != b.read:
        what = f"{a.reader} read {a.read} samples and {b.reader} {b.read}, {handed} were handed out"
    else:
        what = f"{a.reader} and {b.reader} read {a.read} samples each, in different order"
    return RankupError(
        "streams-differ",
        f"the stream was not the same for all readers: {what}. Samples are missing, or were seen twice",
        context="the data set shuffles with a generator of its own, or splits over ranks itself",
        hint=WAYS_OUT,
        exit_code=1,
    )


def _off(handed: int, whole: int) -> str:
    return f"{whole - handed} are missing" if handed < whole else f"{handed - whole} too many"


def length_warning(length: int | None, handed: int) -> str | None:
    """A warning if the data set has a length, and another number of samples was handed out."""
    if length is None or length == handed:
        return None
    return (
        f"the data set says that it has {length} samples, but {handed} were handed out over all ranks in this pass: "
        f"{_off(handed, length)}. Its __len__ is wrong, or it is not split as it should be (sharded=)"
    )
