"""A batch of one rank, and how a rank's part is cut out of each global batch."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from rankup.errors import RankupError
from rankup.runtime.data.order import Order, StepPlan
from rankup.runtime.data.sharding import Sharding
from rankup.runtime.distributed.control import Control, raise_on_all


@dataclass
class Position:
    """The epoch in progress and how many of its steps are done. With the seed, a resume needs nothing else of the data.

    A step counts as done once its last batch is handed out: in the loop's body, take the state after ``opt.step()``.
    ``total`` counts the steps of all epochs. ``ended`` is True while the code after the inner loop runs: a state taken
    there counts the epoch as finished, so that this code does not run again.
    """

    epoch: int = 0
    step: int = 0
    total: int = 0
    ended: bool = False

    def end_epoch(self) -> None:
        """The code after the inner loop has run, too."""
        self.epoch, self.step, self.ended = self.epoch + 1, 0, False

    def resume(self) -> tuple[int, int]:
        """(epoch, step) for a run that resumes from here."""
        return (self.epoch + 1, 0) if self.ended else (self.epoch, self.step)

    def state(self) -> dict[str, Any]:
        """What a snapshot contains of it."""
        return {"at": list(self.resume()), "total": self.total}

    def load(self, saved: dict[str, Any]) -> None:
        """Restore what ``state`` gave."""
        self.epoch, self.step = saved["at"]
        self.total, self.ended = saved["total"], False


if TYPE_CHECKING:
    from rankup.runtime.data.samplers import SampledOrder

# Pieces that are indexed together; resident data holds as many gathered batches at a time, and no more.
CHUNK = 64
_NAMED = 4  # changes in a message


class Batch(NamedTuple):
    """What one rank computes on at once. A step is one batch, or several micro-batches of which one is ``last``."""

    value: Any  # what the loop gets
    samples: int  # samples of this rank that count; 0 for a dummy batch, which only keeps collectives matched
    total: int  # samples of the whole step, over all ranks and micro-batches
    last: bool  # whether the optimizer steps after it
    part: int = 0  # which of the step's micro-batches, or of its virtual shards, it is
    dummies: bool = False  # whether some rank has a dummy batch in this step


class DataFeed(Protocol):
    """The data of one rank. ``position`` is where the training on it is; a state compares ``cut`` of two feeds. What is
    a stream is a ``StreamFeed``."""

    position: Position
    is_stream: bool

    @property
    def cut(self) -> dict[str, int | None]:
        """For what the position is valid: length, global batch, micro-batches."""
        ...

    @property
    def steps(self) -> int | None:
        """Steps per epoch; None if unknown."""
        ...

    def __len__(self) -> int:
        """The same; TypeError if unknown."""
        ...

    def check_unchanged(self, control: Control | None, forgotten: Iterable[str]) -> None:
        """RankupError if the data set is not what loader workers have. A collective."""
        ...

    def batches(self, epoch: int, start: int) -> Generator[Batch, None, None]:
        """The batches of ``epoch`` from step ``start`` on."""
        ...


class PreparedData:
    """What a script may do with the data that ``prepare`` returned as it would with a DataLoader, and what it may
    not."""

    is_stream = False
    position: Position
    _loader: Any = None  # torch's, of a feed that has one

    def check_unchanged(self, control: Control | None, forgotten: Iterable[str]) -> None:
        """RankupError ``data-changed`` if the data set is not what loader workers have. ``forgotten``: names that do
        not count. A collective."""
        if self._loader is not None:
            raise_on_all(
                control, "the comparison of the data with what workers have", self._changed(forgotten)
            )

    def _changed(self, forgotten: Iterable[str]) -> RankupError | None:
        copies = self._loader.copies
        done = self.position.step == self.steps  # of this epoch the workers make no more samples
        if copies is None or done or not (changed := copies.changed(forgotten)):
            return None
        values = "; ".join(
            f"{path}: {f'{was} with other values' if was == now else f'{was} then, {now} now'}"
            for path, was, now in changed[:_NAMED]
        )
        return RankupError(
            "data-changed",
            f"the data set changes while loader workers have the copy of it with which they began: {values}. They go "
            "on with the old values, and those of a resume would begin with the new ones",
            hint="change it between epochs (before the inner loop, or after it) and without persistent_workers=True, "
            "since workers begin with each epoch; or num_workers=0; run.forget(…) for what no sample depends on",
            exit_code=1,
        )

    @property
    def steps(self) -> int | None:
        raise NotImplementedError

    def __len__(self) -> int:
        if self.steps is None:
            raise TypeError("an IterableDataset has no number of steps")
        return self.steps

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        raise RankupError(
            "data-iterated",
            "a loop over the data that run.prepare returned: it has no epochs, and nothing of it would be saved",
            hint="for epoch in run.epochs(n): for batch in epoch: …   or for batch in run.steps(data, epochs=n); to "
            "look at a sample, take it from the data set",
            exit_code=1,
        )


# One rank's part of one (micro-)batch: half-open bounds into the epoch's order, and all of its ``Batch`` but the value.
Piece = tuple[int, int, tuple[int, int, bool, int, bool]]


def cut(sharding: Sharding, plan: StepPlan, start: int, parts: int, *, fill: bool) -> Iterator[Piece]:
    """This rank's pieces, ``parts`` per step. If a part is empty, training (``fill``) takes a dummy batch of two
    samples (BatchNorm refuses one) with a count of 0, so that every rank joins every collective; an evaluation skips
    it. With virtual shards ``parts`` is 1, and the pieces are those of this rank's shards."""
    total, mine = -1, []
    for base, end in pairwise(plan.starts[start:]):
        if end - base != total:  # the same in most steps
            total = end - base
            given = sharding.parts(total, parts)
            dummies = fill and total < sharding.world_size * parts
            mine = [
                (low, high, (high - low, total, part == given[-1][0], part, dummies))
                for part, low, high in given
            ]
        for low, high, counts in mine:
            if high > low:
                yield base + low, base + high, counts
            elif fill:
                two = max(0, min(base, len(plan.order) - 2))
                yield two, min(two + 2, len(plan.order)), counts


def rows_of(order: Order, pieces: list[Piece]) -> torch.Tensor:
    """What ``order`` has for all pieces, one after another."""
    return order.rows([(start, stop) for start, stop, _ in pieces])


def cut_of(sharding: Sharding, parts: int) -> dict[str, int | None]:
    return {
        "length": sharding.length,
        "global_batch": sharding.global_batch or None,  # a batch sampler's vary
        "accumulate": parts,
        "drop_last": int(sharding.drop_last),
        "sampler": None if sharding.sampled is None else sharding.sampled.kind,
    }


def steps_of(sharding: Sharding, position: Position) -> int:
    """Steps of the epoch in progress: with a sampler, epochs may have different numbers."""
    return sharding.steps if sharding.sampled is None else sharding.plan(position.epoch).steps


def sampled_order(feed: DataFeed) -> SampledOrder | None:
    """The order of ``feed``, if a sampler of the user's gives it."""
    sharding = getattr(feed, "sharding", None)
    return None if sharding is None else sharding.sampled


def chunks(pieces: Iterator[Piece], size: int = CHUNK) -> Iterator[list[Piece]]:
    """Several pieces at a time: one indexing for all costs a fraction of one for each."""
    while chunk := list(islice(pieces, size)):
        yield chunk
