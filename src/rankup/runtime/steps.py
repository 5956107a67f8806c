"""Epochs and steps: where training stands, and what holds around each batch that the loop gets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rankup.errors import RankupError
from rankup.runtime import buffers
from rankup.runtime.loaders import Batch, Feed
from rankup.runtime.seed import derive, seed_everything
from rankup.strategies.any_world import AnyWorld

if TYPE_CHECKING:
    from rankup.runtime.run import Run
    from rankup.runtime.survival import Survival


class Epoch:
    """One epoch: iterate it for this rank's batches. ``index`` from 0; ``len()`` is the number of steps."""

    def __init__(self, run: Run, feed: Feed, index: int, survival: Survival) -> None:
        self.index = index
        self._survival = survival
        self._run = run
        self._feed = feed

    @property
    def done(self) -> int:
        """Steps of this epoch that are done: more than 0 at the beginning of one that is resumed."""
        return self._feed.position.step

    def __len__(self) -> int:
        steps = self._feed.steps
        if steps is None:
            raise TypeError("an IterableDataset has no number of steps")
        return steps

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self.batches()
        except GeneratorExit:  # a break ends the epoch: a resume must not train what is left of it
            position = self._feed.position
            position.step = position.step if self._feed.steps is None else self._feed.steps
            self._survival.epoch_trained(alone=True)
            position.ended = True
            raise

    def batches(self) -> Iterator[Any]:
        """The same in the flat form of the loop: a break leaves the epoch where it stands."""
        run, position, strategy = self._run, self._feed.position, self._run.strategy
        accumulates, checked = run.gradients.accumulate > 1, run.gradients.need_calls
        replicas = run.replicas
        by_shard = isinstance(strategy, AnyWorld)
        run.gradients.check_finished()
        try:
            for batch in self._feed.batches(self.index, position.step):
                run.batch = batch
                run.buffers_differ = not by_shard
                if by_shard:
                    self._begin_shard(batch)
                elif accumulates:  # run.backward weighs the micro-batches
                    run.gradients.weigh(1.0 if batch.samples else 0.0)
                else:
                    run.gradients.weigh(batch.samples * replicas / batch.total)
                if batch.last:
                    position.step += 1
                if batch.samples and batch.last and not checked:
                    yield batch.value
                else:
                    yield from self._with_care(batch)
                if batch.last:
                    self._survival.step_done()
        except GeneratorExit:  # a break, or an error: nothing that another rank would have to join
            if run.batch is not None and run.batch.last:
                run.steps_done += 1
            elif run.batch is not None:
                run.gradients.unfinished = True
                if isinstance(strategy, AnyWorld):
                    strategy.back_to_begin()
            raise
        finally:
            run.batch = None
            run.gradients.weigh(1.0)  # what follows is no step of ours
            if by_shard:  # the last shard's numbers are not the same on all ranks
                seed_everything(derive(run.seed, "behind", self.index))
        run.settle_buffers()
        self._survival.epoch_trained()
        position.ended = True

    def _begin_shard(self, batch: Batch) -> None:
        """Random numbers and batch statistics from a beginning that is the shard's own, whoever computes it."""
        run = self._run
        assert isinstance(run.strategy, AnyWorld)
        run.strategy.begin_shard(batch.part, counted=batch.samples > 0, total=batch.total)
        seed_everything(derive(run.seed, "shard", self.index, self._feed.position.step, batch.part))

    def _with_care(self, batch: Batch) -> Iterator[Any]:
        """A batch that does not count, is not the last of its step, or must go through ``run.backward``."""
        run, gradients = self._run, self._run.gradients
        # Virtual shards begin with the step's buffers anyway, and one without samples adds none to them.
        saved = [] if batch.samples or run.strategy.shards else buffers.copies(run.models)
        backwards, steps = gradients.backward_calls, gradients.step_calls
        try:
            if batch.last:
                yield batch.value
            else:
                with run.strategy.deferred():
                    yield batch.value
        finally:
            buffers.restore(saved)
        if gradients.need_calls and (gradients.backward_calls == backwards or gradients.step_calls == steps):
            raise RankupError(
                "plain-backward",
                "accumulate=, clip=, sync_batchnorm=, fp16 and any-world want run.backward and run.step, which "
                "were not called",
                hint="call them instead of loss.backward() and opt.step(), in every iteration",
                exit_code=1,
            )
