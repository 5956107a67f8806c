"""Epochs and steps: the loop, and what is done around each batch."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Generator, Iterator
from typing import Any

from rankup.errors import RankupError
from rankup.runtime.checkpointing.checkpointing import Checkpointing
from rankup.runtime.checkpointing.loop_variables import IndexedEpoch
from rankup.runtime.checkpointing.outside_loops import OwnBatches
from rankup.runtime.context import RunContext
from rankup.runtime.data.batches import Batch, DataFeed
from rankup.runtime.distributed import buffers
from rankup.runtime.loop.evaluation import Evaluations
from rankup.runtime.loop.schedules import ScheduleGuard
from rankup.runtime.records.facts import training_facts
from rankup.runtime.seed import derive, seed_everything


def loop(
    run: RunContext,
    checkpointing: Checkpointing,
    evaluations: Evaluations,
    data: DataFeed | None,
    unit: str,
    goal: int | None,
) -> Iterator[Epoch]:
    """The epochs of a loop over ``goal`` epochs or steps (``unit``), from the current position; see ``Run.epochs``."""
    feed = data if data is not None else (run.feeds[-1] if run.feeds else None)
    if not hasattr(feed, "position"):
        raise RankupError(
            "not-prepared",
            f"the loop needs the data that prepare returned, not {type(feed).__name__}",
            hint="model, opt, data = run.prepare(model, opt, dataset, global_batch=…)",
        )
    assert feed is not None
    if not isinstance(goal, int) or goal < 1:
        raise RankupError("bad-length", f"{unit}={goal!r}: at least 1 is needed")
    position = feed.position
    evaluations.overtake()
    complete = False

    def epoch_of(index: int) -> Epoch:
        return Epoch(run, feed, index, checkpointing, evaluations)

    with checkpointing.loop(feed, unit, goal, epoch_of) as trains:
        facts = training_facts(run, feed)
        run.records.begin(feed, unit, goal, run.global_step, facts, run.models)
        if run.control is not None:
            run.control.waiting.watch(run.records.progress)
        own = OwnBatches(run)
        scaler = run.gradients.scaler
        overflows = scaler.skipped if scaler is not None else 0
        try:
            while trains and (position.epoch if unit == "epochs" else position.total) < goal:
                epoch = epoch_of(position.epoch)
                own.begin()
                try:
                    yield epoch
                finally:
                    epoch.close()
                own.end(iterated=epoch.iterated)
                if unit == "steps" and position.total >= goal and not position.ended:
                    break  # in the middle of an epoch
                run.records.epoch_done(epoch.index, run.global_step)
                position.end_epoch()
                checkpointing.epoch_done()
            complete = True
        finally:
            if run.control is not None:
                run.control.waiting.watch(None)
            overflows = scaler.skipped - overflows if scaler is not None else 0
            run.records.end(run.global_step, complete=complete, overflowed=overflows)


class Epoch(IndexedEpoch):
    """One epoch: iterate it once for this rank's batches. ``index`` from 0; ``len()`` is the number of steps."""

    def __init__(
        self,
        run: RunContext,
        feed: DataFeed,
        index: int,
        checkpointing: Checkpointing,
        evaluations: Evaluations,
    ) -> None:
        self.index = index
        self._checkpointing = checkpointing
        self._evaluations = evaluations
        self._run = run
        self._feed = feed
        self.iterated = False
        # Weak, so that a break ends the iteration at once.
        self._iterator: weakref.ref[Generator[Any, None, None]] | None = None

    @property
    def done(self) -> int:
        """Steps of this epoch that are done: more than 0 at the beginning of a resumed epoch. In the body of the loop
        with the step at hand."""
        return self._feed.position.step

    @property
    def seconds(self) -> float:
        """Seconds of training so far, over all attempts, without the code after the inner loop."""
        return self._run.records.epoch_seconds

    @property
    def samples(self) -> int:
        """Samples so far, over all ranks and attempts."""
        return self._run.records.epoch_samples

    def __len__(self) -> int:
        steps = self._feed.steps
        if steps is None:
            raise TypeError("an IterableDataset has no number of steps")
        return steps

    def __iter__(self) -> Iterator[Any]:
        if self._iterator is not None:
            raise RankupError(
                "epoch-iterated-twice",
                f"epoch {self.index + 1} is iterated a second time, and has handed out its batches already",
                hint="iterate each epoch once; run.epochs(2 * n) goes over the data twice as often",
                exit_code=1,
            )
        iterator = self._batches_of_all()
        self._iterator = weakref.ref(iterator)
        return iterator

    def close(self) -> None:
        """End an iteration that a variable holds and that was left unfinished, as a ``break`` does; not one that
        another thread runs."""
        iterator = self._iterator() if self._iterator is not None else None
        if iterator is not None and inspect.getgeneratorstate(iterator) != inspect.GEN_RUNNING:
            iterator.close()

    def _batches_of_all(self) -> Generator[Any, None, None]:
        try:
            yield from self.batches()
        except GeneratorExit:  # a break ends the epoch: a resume must not train the rest of it
            position = self._feed.position
            position.step = position.step if self._feed.steps is None else self._feed.steps
            self._checkpointing.epoch_trained(alone=True)
            position.ended = True
            raise

    def batches(self, limit: int | None = None) -> Iterator[Any]:
        """The same in the flat form of the loop: a break leaves the epoch at its position, and so does ``limit``, a
        number of steps since the data was prepared."""
        run, position, strategy = self._run, self._feed.position, self._run.strategy
        records = run.records
        checked = run.gradients.need_calls
        by_parts = strategy.by_parts
        run.gradients.check_finished()
        reached = False
        self._checkpointing.epoch_begins()
        self.iterated = True
        try:
            for batch in records.timed_batches(self._feed.batches(self.index, position.step)):
                if run.evaluating:
                    self._evaluations.overtake()
                run.batch = batch
                if batch.last:
                    run.steps_reached = run.global_step + 1
                run.buffers_differ = not by_parts
                run.gradients.begin(batch)
                if by_parts:
                    self._begin_part(batch)
                if batch.last:
                    position.advance()
                if batch.samples and batch.last and not checked:
                    yield batch.value
                else:
                    yield from self._with_care(batch)
                if batch.last:
                    records.step_done(batch, run.steps_reached)
                    self._checkpointing.step_done()
                    if limit is not None and position.total >= limit:
                        reached = True
                        records.stopped()
                        break
        except GeneratorExit:  # a break, or an error: no collectives here
            if run.batch is not None and run.batch.last:
                run.global_step += 1
            elif run.batch is not None:
                run.gradients.unfinished = True
                strategy.abandon_step()
            raise
        finally:
            run.batch = None
            run.gradients.end()
            if by_parts:  # the last part's numbers are not the same on all ranks
                seed_everything(derive(run.seed, "behind", self.index))
        run.settle_buffers()
        if reached and position.step != self._feed.steps:
            return
        records.epoch_trained()
        self._checkpointing.epoch_trained()
        position.ended = True

    def _begin_part(self, batch: Batch) -> None:
        """Random numbers and batch statistics begin in the same way for this part on whatever rank."""
        run = self._run
        run.strategy.begin_part(batch.part, counted=batch.samples > 0, total=batch.total)
        step = self._feed.position.step
        run.gradients.part_seed = derive(run.seed, "behind backward", self.index, step)
        seed_everything(derive(run.seed, "shard", self.index, step, batch.part))

    def _with_care(self, batch: Batch) -> Iterator[Any]:
        """A batch that does not count, is not the last of its step, or must go through ``run.backward``."""
        run, gradients = self._run, self._run.gradients
        # Parts begin with the step's buffers anyway, and a part without samples does not change them.
        saved = [] if batch.samples or run.strategy.by_parts else buffers.copies(run.models)
        backwards, steps = gradients.backward_calls, gradients.step_calls
        try:
            if batch.last:
                yield batch.value
            else:
                gradients.schedules = gradients.schedules or ScheduleGuard(run.optimizers)
                gradients.schedules.remember()
                with run.strategy.no_sync():
                    yield batch.value
                gradients.schedules.check()
        finally:
            buffers.restore(saved)
        if gradients.need_calls and (gradients.backward_calls == backwards or gradients.step_calls == steps):
            raise RankupError(
                "plain-backward",
                "accumulate=, clip=, sync_batchnorm=, fp16 and any-world require run.backward and run.step, which "
                "were not called",
                hint="call them instead of loss.backward() and opt.step(), in every iteration",
                exit_code=1,
            )
