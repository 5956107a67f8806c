"""Epochs and steps: where training stands, and what holds around each batch that the loop gets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rankup.errors import RankupError
from rankup.runtime import buffers
from rankup.runtime.loaders import Batch, Feed

if TYPE_CHECKING:
    from rankup.runtime.run import Run


@dataclass
class Position:
    """The epoch in progress and the steps of it that are done: with the seed, all that a resume needs of the data.

    ``step`` counts a step as done from the moment its batch is handed out: state taken in the loop's body is meant
    to be taken after ``opt.step()``. At the end of an epoch it stays at the number of steps while the code behind
    the inner loop runs, and becomes (epoch + 1, 0) when that code is done: so it runs exactly once per epoch.
    """

    epoch: int = 0
    step: int = 0


class Epoch:
    """One epoch: iterate it for this rank's batches. ``index`` from 0; ``len()`` is the number of steps."""

    def __init__(self, run: Run, feed: Feed, index: int) -> None:
        self.index = index
        self._run = run
        self._feed = feed

    def __len__(self) -> int:
        steps = self._feed.steps
        if steps is None:
            raise TypeError("an IterableDataset has no number of steps")
        return steps

    def __iter__(self) -> Iterator[Any]:
        run, position, strategy = self._run, self._run.position, self._run.strategy
        accumulates = run.accumulate > 1
        checked = run.needs_backward
        world_size = run.world.world_size
        try:
            for batch in self._feed.batches(self.index, position.step):
                run.batch = batch
                strategy.weigh(1.0 if accumulates else batch.samples * world_size / batch.total)
                if batch.last:
                    position.step += 1
                if batch.samples and batch.last and not checked:
                    yield batch.value
                else:
                    yield from self._with_care(batch)
        finally:
            run.batch = None
            strategy.weigh(1.0)  # what follows is no step of ours
            run.buffers_differ = True
        run.settle_buffers()

    def _with_care(self, batch: Batch) -> Iterator[Any]:
        """A batch that does not count, is not the last of its step, or must go through ``run.backward``."""
        run = self._run
        saved = [] if batch.samples else buffers.copies(run.models)
        calls = run.backward_calls
        if batch.last:
            yield batch.value
        else:
            with run.strategy.deferred():
                yield batch.value
        buffers.restore(saved)
        if run.needs_backward and run.backward_calls == calls:
            raise RankupError(
                "plain-backward",
                "the loop called loss.backward(), but accumulate= or clip= of prepare was given",
                hint="call run.backward(loss) and run.step(opt) instead of loss.backward() and opt.step()",
                exit_code=1,
            )
