"""Epochs and steps: the loop, and what is done around each batch."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from rankup.core.whole_lines import say
from rankup.errors import RankupError
from rankup.runtime.call_site import call_site
from rankup.runtime.checkpointing.checkpointing import Checkpointing
from rankup.runtime.context import RunContext
from rankup.runtime.data.batches import DataFeed, shorter_goal
from rankup.runtime.data.portions import Batch, Batches, MadePortion, MakingPortion, Portion
from rankup.runtime.distributed import buffers
from rankup.runtime.loop.evaluation import Evaluations
from rankup.runtime.loop.optimizer_steps import OptimizerSteps
from rankup.runtime.records.facts import training_facts
from rankup.runtime.seed import derive, seed_everything

if TYPE_CHECKING:
    from rankup.runtime.records.step_counts import StepCounts

_MOMENT = 0.02  # seconds: a record and a request to stop are not later than that


def loop(
    run: RunContext,
    checkpointing: Checkpointing,
    evaluations: Evaluations,
    steps: OptimizerSteps,
    data: DataFeed | None,
    unit: str,
    goal: int | None,
    *,
    flat: bool,
) -> Generator[Epoch, None, None]:
    """The epochs of a loop over ``goal`` epochs or steps (``unit``), from the current position; see ``Run.epochs``.
    ``flat``: for ``Run.steps``."""
    feed = data if data is not None else (run.feeds[-1] if run.feeds else None)
    if not hasattr(feed, "position"):
        raise RankupError(
            "not-prepared",
            f"the loop needs the data that prepare returned, not {type(feed).__name__}",
            hint="model, opt, data = run.prepare(model, opt, dataset, global_batch=…)",
        )
    assert feed is not None
    if all(feed is not mine for mine in run.feeds):
        raise RankupError(
            "data-of-another-run",
            "the loop needs data that this run has prepared: a position in the data belongs to one run",
            hint="_, _, data = run.prepare(model, None, dataset, global_batch=…), with the run of this loop",
            exit_code=1,
        )
    if not isinstance(goal, int) or goal < 1:
        raise RankupError("bad-length", f"{unit}={goal!r}: at least 1 is needed")
    goal = shorter_goal(feed, unit, goal)
    limit = goal if unit == "steps" else None
    position = feed.position
    evaluations.overtake()
    complete = False
    with checkpointing.loop(feed, unit, goal, flat=flat) as repeats:
        facts = {**training_facts(run, feed), "snapshot_every": checkpointing.every}
        run.records.begin(feed, unit, goal, run.global_step, facts, run.models, repeats=repeats)
        if run.control is not None:
            run.control.waiting.watch(run.records.progress, run.values)
        scaler = run.gradients.scaler
        overflows = scaler.skipped if scaler is not None else 0
        try:
            while (position.epoch if unit == "epochs" else position.total) < goal:
                epoch = Epoch(run, feed, position.epoch, limit, checkpointing, evaluations)
                try:
                    yield epoch
                finally:
                    epoch.close()
                if not epoch.iterated:
                    _warn_of_other_batches(run)
                if unit == "steps" and position.total >= goal and not position.ended:
                    break  # in the middle of an epoch
                run.records.epoch_done(epoch.index, run.global_step)
                position.end_epoch()
                checkpointing.epoch_done(
                    last=(position.epoch if unit == "epochs" else position.total) >= goal
                )
            complete = True
        finally:
            if run.control is not None:
                run.control.waiting.watch(None)
            overflows = scaler.skipped - overflows if scaler is not None else 0
            run.records.end(run.global_step, complete=complete, optimizer_steps=steps.count + overflows)


def _warn_of_other_batches(run: RunContext) -> None:
    if run.world.is_main and not run.said_not_iterated:
        run.said_not_iterated = True
        say(
            f"warning: an epoch of run.epochs at {call_site()} was not iterated: batches of another loader are not "
            "divided among the ranks here, their steps are not counted, and a resume begins the epoch anew. Write for "
            "batch in epoch: …, over the data set that prepare got"
        )


class Epoch:
    """One epoch: iterate it once for this rank's batches. ``index`` from 0; ``len()`` is the number of its batches on
    this rank, micro-batches counted, as a progress bar counts them."""

    def __init__(
        self,
        run: RunContext,
        feed: DataFeed,
        index: int,
        limit: int | None,
        checkpointing: Checkpointing,
        evaluations: Evaluations,
    ) -> None:
        self.index = index
        self._limit = limit  # of the steps since the data was prepared
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

    @property
    def steps(self) -> int:
        """Steps of the whole epoch. TypeError for a stream, which has no number of them."""
        return len(self._feed)

    def __len__(self) -> int:
        return self.steps * len(self._run.plan.pieces(0, self._feed.cut["accumulate"] or 1))

    def __iter__(self) -> Iterator[Any]:
        if self._iterator is not None:
            raise RankupError(
                "epoch-iterated-twice",
                f"epoch {self.index + 1} is iterated a second time, and has handed out its batches already",
                hint="iterate each epoch once; run.epochs(2 * n) goes over the data twice as often",
                exit_code=1,
            )
        portions = self._portions_of_all()
        self._iterator = weakref.ref(portions)
        return Batches.of(portions)

    def close(self) -> None:
        """End an iteration that a variable holds and that was left unfinished, as a ``break`` does; not one that
        another thread runs."""
        iterator = self._iterator() if self._iterator is not None else None
        if iterator is not None and inspect.getgeneratorstate(iterator) != inspect.GEN_RUNNING:
            iterator.close()

    def _portions_of_all(self) -> Generator[Iterable[Any], None, None]:
        try:
            yield from self.portions()
        except GeneratorExit:  # a break ends the epoch: a resume must not train the rest of it
            position = self._feed.position
            if self._feed.steps is not None:
                position.go_to(position.epoch, self._feed.steps)
            self._checkpointing.epoch_trained(alone=True)
            position.ended = True
            raise

    def portions(self) -> Generator[Iterable[Any], None, None]:
        """The same in the flat form of the loop: a break leaves the epoch at its position, and so does the loop's goal
        in steps.

        What is done around batches is here, in one generator. It runs once for all batches of a portion."""
        run, position, checkpointing = self._run, self._feed.position, self._checkpointing
        gradients, records = run.gradients, run.records
        checked, by_parts = gradients.need_calls, run.strategy.by_parts
        gradients.check_finished()
        reached, steps = False, 0
        checkpointing.epoch_begins()
        self.iterated = True
        feed = self._feed.batches(self.index, position.step)
        counts = records.begin_steps()
        try:
            for batch in feed:
                counts.batch_got(batch.samples)
                if run.evaluating:
                    self._evaluations.overtake()
                run.batch = batch
                run.buffers_differ = not by_parts
                gradients.begin(batch)
                if by_parts:
                    self._begin_part(batch)
                if not batch.last:
                    yield from self._with_care(batch, (batch.value,))
                    counts.batch_done()
                    continue
                care = checked or not batch.samples
                # When ranks arrive is told of steps that are timed by themselves.
                alone = care or (counts.arrival is not None and steps != 1)
                portion = self._portion(batch, counts, 1 if alone else self._undisturbed())
                run.give(portion)
                position.portion = portion
                if care:
                    yield from self._with_care(batch, portion.values)
                else:
                    yield portion.values
                steps = portion.handed
                position.advance(steps)
                run.stand_at(step := run.steps_reached)
                portion.check()
                if counts.steps_done(steps, batch, step):
                    records.tell(step)
                # After a request that came while the batch behind was read, the next step attends: a stream's state
                # has counted that batch. No other due step lies within a portion.
                if step >= checkpointing.due and self._feed.behind is None:
                    checkpointing.attend()
                if position.total == self._limit:
                    reached = True
                    records.stopped()
                    break
            else:
                records.end_steps(waits=True)
        except GeneratorExit:  # a break, or an error: no collectives here
            if run.batch is not None and run.batch.last:
                run.portion.cut()
                steps, batch = run.portion.handed, run.batch
                position.advance(steps)
                run.stand_at(run.steps_reached)
                counts.steps_done(steps, batch, run.global_step)
            elif run.batch is not None:
                gradients.unfinished = True
                run.strategy.abandon_step()
            raise
        finally:
            feed.close()
            records.end_steps(waits=False)
            run.batch = None
            gradients.end()
            if by_parts:  # the last part's numbers are not the same on all ranks
                seed_everything(derive(run.seed, "behind", self.index))
        run.settle_buffers()
        if reached and position.step != self._feed.steps:
            return
        records.epoch_trained()
        checkpointing.epoch_trained()
        position.ended = True

    def _undisturbed(self) -> int:
        """Steps up to the next one after which something is due, at least one; no more than take a moment."""
        steps = min(self._checkpointing.due - self._run.global_step, self._run.records.steps_in(_MOMENT))
        return max(1, steps if self._limit is None else min(steps, self._limit - self._feed.position.total))

    def _portion(self, batch: Batch, counts: StepCounts, most: int) -> Portion:
        """Of ``batch`` and up to ``most - 1`` that follow it."""
        ready = self._feed.ready
        return MadePortion(batch, ready, most) if ready.made else MakingPortion(batch, ready, most, counts)

    def _begin_part(self, batch: Batch) -> None:
        """Random numbers and batch statistics begin in the same way for this part on whatever rank."""
        run = self._run
        run.strategy.begin_part(batch.part, counted=batch.samples > 0, total=batch.total)
        step = self._feed.position.step
        run.gradients.part_seed = derive(run.seed, "behind backward", self.index, step)
        seed_everything(derive(run.seed, "shard", self.index, step, batch.part))

    def _with_care(self, batch: Batch, values: Iterable[Any]) -> Iterator[Iterable[Any]]:
        """A batch that does not count, is not the last of its step, or must go through ``run.backward``."""
        run, gradients = self._run, self._run.gradients
        # Parts begin with the step's buffers anyway, and a part without samples does not change them.
        saved = [] if batch.samples or run.strategy.by_parts else buffers.copies(run.models)
        backwards, steps = gradients.backward_calls, gradients.step_calls
        try:
            if batch.last:
                yield values
            else:
                from rankup.runtime.loop.schedules import ScheduleGuard

                gradients.schedules = gradients.schedules or ScheduleGuard(run.optimizers)
                gradients.schedules.remember()
                with run.strategy.no_sync():
                    yield values
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
