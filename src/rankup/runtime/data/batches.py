"""A batch of one rank, and how a rank's part is cut out of each global batch."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rankup.errors import RankupError
from rankup.runtime.data.order import Span, StepPlan
from rankup.runtime.data.portions import NOTHING, Batch, Counts, Position, Ready
from rankup.runtime.data.sharding import Sharding
from rankup.runtime.distributed.control import Control, raise_on_all

if TYPE_CHECKING:
    from rankup.runtime.data.samplers import SampledOrder

# Batches that resident data gathers together; it holds as many at a time, and no more.
CHUNK = 64
# Batches whose places are cut together: a place is a few numbers, and each cut reads its code anew from memory.
LONG = 1024
_NAMED = 4  # changes in a message


class DataFeed(Protocol):
    """The data of one rank. ``position`` is where the training on it is; a state compares ``cut`` of two feeds. What is
    a stream is a ``StreamFeed``."""

    position: Position
    is_stream: bool
    ready: Ready
    behind: Batch | None

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
    ready = NOTHING  # before the first batch
    behind: Batch | None = None  # the next batch, if it was read to find out what it counts as
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


class Pieces(NamedTuple):
    """One rank's (micro-)batches of some steps: where they are in the epoch's order, one after another (pieces that
    follow each other may be one span), how many samples each has, and what each counts as."""

    spans: Sequence[Span]
    sizes: Sequence[int]
    counts: Sequence[Counts]


def cut(
    sharding: Sharding, plan: StepPlan, start: int, parts: int, *, fill: bool, steps: int = 1
) -> Iterator[Pieces]:
    """This rank's pieces, ``parts`` per step, of ``steps`` steps at a time. If a part is empty, training (``fill``)
    takes a dummy batch of two samples (BatchNorm refuses one) with a count of 0, so that every rank joins every
    collective; an evaluation skips it. With virtual shards ``parts`` is 1, and the pieces are those of this rank's
    shards."""
    total, mine = -1, []
    for first in range(start, plan.steps, steps):
        bounds = plan.starts[first : first + steps + 1]
        spans: list[Span] = []
        sizes: list[int] = []
        counts: list[Counts] = []
        for base, end in pairwise(bounds):
            if end - base != total:  # the same in most steps
                total = end - base
                given = sharding.parts(total, parts)
                dummies = fill and total < sharding.world_size * parts
                mine = [
                    (low, high, (high - low, total, part == given[-1][0], part, dummies))
                    for part, low, high in given
                ]
                if isinstance(bounds, range) and len(mine) == 1 and mine[0][1] > mine[0][0]:  # all at once
                    low, high, counted = mine[0]
                    whole = high - low == total
                    spans = [(base, bounds[-1])] if whole else [(at + low, at + high) for at in bounds[:-1]]
                    sizes, counts = [high - low] * (len(bounds) - 1), [counted] * (len(bounds) - 1)
                    total = -1
                    break
            for low, high, counted in mine:
                if high > low:
                    spans.append((base + low, base + high))
                elif fill:
                    two = max(0, min(base, len(plan.order) - 2))
                    spans.append((two, min(two + 2, len(plan.order))))
                else:
                    continue
                sizes.append(spans[-1][1] - spans[-1][0])
                counts.append(counted)
        if sizes:
            yield Pieces(spans, sizes, counts)


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


# For ``rankup verify --quick``: an epoch, and a pass of an evaluation, has at most so many steps; a loop trains at most
# so many epochs. The script sees a smaller data set and a smaller goal, and nothing else changes.
EPOCH_STEPS = "RANKUP_EPOCH_STEPS"
EPOCHS = "RANKUP_EPOCHS"


def most_steps() -> int | None:
    """The most steps of an epoch; None: all."""
    return int(os.environ.get(EPOCH_STEPS) or 0) or None


def shorter_goal(feed: DataFeed, unit: str, goal: int) -> int:
    """The goal of a loop over ``goal`` epochs or steps."""
    epochs = int(os.environ.get(EPOCHS) or 0)
    if not epochs:
        return goal
    steps = (feed.steps or most_steps()) if unit == "steps" else 1
    return goal if steps is None else min(goal, epochs * steps)
