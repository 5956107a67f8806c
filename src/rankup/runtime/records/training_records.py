"""Records of a training, as the loop itself sees it: steps, samples per second, time spent waiting for data, time left.

The loop calls in here once per step, which counts (``step_counts``) and, when a record is due,
tells. Rank 0 writes steps and epochs; each rank writes what it does itself (``rank_records``). The format is in
docs/reference/records.md.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from rankup.runtime.data.batches import DataFeed
from rankup.runtime.data.portions import NONE, Portion, Position
from rankup.runtime.records.arrival import arrival_of
from rankup.runtime.records.logged_numbers import LoggedNumbers
from rankup.runtime.records.rank_records import RankRecords
from rankup.runtime.records.step_counts import NEVER, StepCounts, TrainingTotals

if TYPE_CHECKING:
    from rankup.core.rundir import RunDir
    from rankup.runtime.records.first_batches import FirstBatches
    from rankup.runtime.records.outputs import Outputs

# A record is due so often (seconds); more seldom in a long training, so that a week of it stays under 100,000 records.
SHORTEST, LONGEST = 0.5, 10.0
# Steps of an attempt that are not timed: kernels are chosen, caches filled and code is compiled in them.
WARM_UP_STEPS = 3


class TrainingRecords:
    """Of one run on this rank. ``directory`` None: no files, but the bar and the loggers all the same."""

    #: Times: no two trainings have the same, so ranks and attempts are not compared by them.
    timed = True

    def __init__(
        self,
        rank: int,
        world_size: int,
        device: torch.device,
        directory: RunDir | None,
        name: str,
        loggers: tuple[str, ...],
    ) -> None:
        self._outputs: Outputs | None = None
        if rank == 0:
            from rankup.runtime.records.outputs import Outputs

            self._outputs = Outputs(directory, name, loggers)
        self._rank, self._world_size = rank, world_size
        self._totals = TrainingTotals(self._wait_for_device, world_size)
        self._own: RankRecords | None = None  # of the loop that is running
        self._device = device
        self._directory = directory
        self._name = name
        self._logged = LoggedNumbers()
        self._feed: DataFeed | None = None  # of the loop that is running
        self._said_step = -1
        self._due = NEVER  # the next record
        self._warm: tuple[float, int] | None = None  # seconds and samples of this loop when it was warm
        self._epoch, self._step_before = 0, 0  # the epoch, and its step when this loop had done none
        self._behind, self._behinds = 0.0, 0  # seconds of the code after the inner loop, and how often it ran
        self._trained_at: float | None = None
        self._first_batches: FirstBatches | None = None  # of the loop that has begun last
        self._in_steps = False  # not between the steps of two epochs

    def state_dict(self) -> dict[str, Any]:
        state, portion = self._totals.state_dict(), self._portion
        return {**state, "epoch_samples": state["epoch_samples"] + portion.handed * portion.batch.total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._totals.load_state_dict(state)

    @property
    def epoch_seconds(self) -> float:
        """Training seconds of the epoch in progress, over all attempts."""
        return self._totals.epoch_seconds

    @property
    def epoch_samples(self) -> int:
        """Samples of the epoch in progress, over all ranks and attempts; in the loop's body those before it."""
        portion = self._portion
        return self._totals.epoch_samples + portion.done * portion.batch.total

    @property
    def _portion(self) -> Portion:
        """Whose steps are not counted yet."""
        return self._feed.position.portion if self._feed is not None else NONE

    def progress(self) -> tuple[int | None, bool]:
        """The steps that have begun, None between the epochs of a loop; whether it waits for a batch."""
        counts, feed = self._totals.counts, self._feed
        return (feed.position.total, counts.asked > counts.got) if self._in_steps and feed else (None, False)

    # -------------------------------------------------------- called by a loop

    def begin(
        self,
        feed: DataFeed,
        unit: str,
        goal: int,
        global_step: int,
        facts: Mapping[str, Any],
        models: list[torch.nn.Module],
        *,
        repeats: bool,
    ) -> None:
        """A loop over ``goal`` epochs or steps begins, at ``global_step`` of the run; the state is restored.
        ``repeats``: it was done in an earlier attempt, and what it tells is told."""
        self._unit, self._goal, self._feed = unit, goal, feed
        self._warm = None
        recorded = self._directory is not None
        alone = not recorded or self._world_size == 1  # nobody asks, or it waits for nobody
        counts = StepCounts(global_step, None if alone else arrival_of(models, self._device))
        self._totals.begin_loop(counts)
        self._logged.end_epoch()  # what was logged before the loop does not count in its first epoch
        if self._directory is not None:
            path = self._directory.records / f"rank-{self._rank}.jsonl"
            self._own = RankRecords(path, self._rank, self._world_size, self._device, self._name, counts)
            self._own.begin()
        if self._outputs is not None:
            self._outputs.begin(unit, goal, global_step, facts, self._totals.spent(), repeats=repeats)
            if recorded and not repeats:
                local = (facts.get("global_batch") or 0) // (
                    self._world_size * (facts.get("accumulate") or 1)
                )
                from rankup.runtime.records.first_batches import FirstBatches

                self._first_batches = FirstBatches(models, self._device.type, local)

    @property
    def loop_steps(self) -> int:
        """Steps that this loop has done in this attempt."""
        return self._totals.counts.steps

    def steps_in(self, seconds: float) -> int:
        """How many take so long, at the pace of the last ones; 1 as long as each step is looked at."""
        counts = self._totals.counts
        if counts.due == NEVER:
            return 1
        return max(1, int(seconds / max(counts.pace, 1e-6)))

    def begin_steps(self) -> StepCounts:
        """The steps of an epoch begin, or go on; what counts them, and each of its calls reads the clock once."""
        position = self._feed.position if self._feed is not None else Position()
        self._epoch, self._step_before = position.epoch + 1, position.step - self._totals.counts.steps
        self._in_steps = True
        return self._totals.start()

    def end_steps(self, *, waits: bool) -> None:
        """The steps of an epoch end, or are left. ``waits``: for what the device still has to do."""
        self._totals.stop(waits=waits)

    def tell(self, global_step: int) -> None:
        """After steps for which ``StepCounts.steps_done`` says that a record is due, or the loop not warm yet."""
        counts = self._totals.counts
        if counts.steps == WARM_UP_STEPS:
            self._wait_for_device()
            self._warm = (self._totals.loop_seconds, counts.total)
        if time.perf_counter() >= self._due:
            self._say_step(global_step)
        if counts.steps >= WARM_UP_STEPS:
            counts.due = self._due

    def stopped(self) -> None:
        """The loop stops after this step, before the end of the epoch: what the device still has to do counts."""
        self._in_steps = False
        self._totals.stop(waits=True)

    def epoch_trained(self) -> None:
        """The epoch's last step is done. The clock has stopped for the code after the inner loop."""
        self._in_steps = False
        self._totals.stop()
        self._trained_at = time.perf_counter()
        if self._own is not None:
            self._own.trained = self._trained_at

    def epoch_done(self, index: int, global_step: int) -> None:
        """The code after the inner loop is done as well."""
        if self._trained_at is not None:
            seconds = time.perf_counter() - self._trained_at
            self._behind, self._behinds = self._behind + seconds, self._behinds + 1
            self._totals.evaluated(seconds)
            self._trained_at = None
        if self._outputs is not None:
            self._say_last_step(global_step)
            for step, numbers in self._logged.take().items():
                told_by_epoch = step == global_step
                (self._outputs.log_with_epoch if told_by_epoch else self._outputs.log)(step, numbers)
            record = {
                **{"epoch": index + 1, "epochs": self._goal if self._unit == "epochs" else None},
                **{"steps": self._step, "global_step": global_step, "samples": self._totals.epoch_samples},
                **{"seconds": self._totals.epoch_seconds, "data_s": self._totals.epoch_waited},
                **{"spent": self._totals.spent(), "metrics": self._logged.latest()},
            }
            self._outputs.epoch(record)
        self._logged.end_epoch()
        self._totals.end_epoch()

    def saved(self, seconds: float) -> None:
        """The training has waited so long for a save."""
        self._totals.saved(seconds, after_epoch=self._trained_at is not None)

    def end(self, global_step: int, *, complete: bool, optimizer_steps: int) -> None:
        """The loop is over, or was left (not ``complete``). ``optimizer_steps``: also those that the loss scaling left
        out, after all of their work but the optimizer's."""
        self._in_steps = False
        self._totals.stop()
        if self._own is not None:
            self._own.end()
            self._own = None
        if self._totals.counts.arrival is not None:
            self._totals.counts.arrival.close()
        if self._first_batches is not None:
            self._first_batches.close()
        if self._outputs is not None:
            self._say_last_step(global_step)
            self._tell_logged(self._outputs)
            self._outputs.end(
                self._timed(global_step, optimizer_steps) if complete and self._totals.counts.steps else None
            )
        self._feed = None

    # --------------------------------------------------------- called by users

    def log(self, numbers: Mapping[str, Any], step: int) -> None:
        """``numbers`` at ``step``. Outside of a loop they are written at once."""
        self._logged.add(numbers, step)
        if self._feed is None and self._outputs is not None:
            self._tell_logged(self._outputs)

    # ------------------------------------------------------------------ inside

    def _say_step(self, global_step: int) -> None:
        totals = self._totals
        elapsed = totals.loop_seconds
        self._due = time.perf_counter() + min(LONGEST, max(SHORTEST, elapsed / 1000))
        if self._own is not None:
            self._own.loss = self._logged.latest_loss()
        if self._outputs is None:
            return
        left_steps = self._steps_left()
        logged = self._logged.take()
        told = logged.pop(global_step, {})
        record = {
            **{"epoch": self._epoch, "epochs": self._goal if self._unit == "epochs" else None},
            **{"step": self._step, "steps": self._feed.steps if self._feed else None},
            "global_step": global_step,
            "goal": None if left_steps is None else global_step + left_steps,
            "samples": totals.epoch_samples,
            "samples_per_s": totals.epoch_samples / max(totals.epoch_seconds, 1e-9),
            "data_s": totals.tell_waited(),
            "seconds": totals.seconds,
            "left": None if left_steps is None else self._seconds_left(left_steps, elapsed),
            **{"spent": totals.spent(), "metrics": told},
        }
        for step, numbers in logged.items():
            self._outputs.log(step, numbers)
        self._outputs.step(record, self._logged.latest())
        self._said_step = global_step

    def _say_last_step(self, global_step: int) -> None:
        if self._totals.counts.steps and self._said_step != global_step:
            self._say_step(global_step)

    def _tell_logged(self, outputs: Outputs) -> None:
        """What was logged and no record has told: after a break, or outside of a loop."""
        for step, numbers in self._logged.take().items():
            outputs.log(step, numbers)

    def _timed(self, global_step: int, optimizer_steps: int) -> dict[str, Any]:
        """What the loop's end tells."""
        seconds, counts = self._totals.loop_seconds, self._totals.counts
        warm_seconds, warm_samples = self._warm or (0.0, 0)
        return {
            **{
                "global_step": global_step,
                "seconds": seconds,
                "samples": counts.total,
                "steps": counts.steps,
                "optimizer_steps": optimizer_steps,
            },
            **{"warm_seconds": seconds - warm_seconds, "warm_samples": counts.total - warm_samples},
            **{"data_s": counts.waited, "spent": self._totals.spent()},
            "seen": self._first_batches.facts if self._first_batches is not None else {},
        }

    def _steps_left(self) -> int | None:
        assert self._feed is not None
        position, steps = self._feed.position, self._feed.steps
        if self._unit == "steps":
            return self._goal - position.total
        if steps is None:
            return None
        return (self._goal - position.epoch) * steps - position.step

    def _seconds_left(self, steps: int, elapsed: float) -> float:
        """At the pace of this attempt; the code after the inner loop is expected to take as long as it has so far."""
        warm, counted = (self._warm[0], WARM_UP_STEPS) if self._warm is not None else (0.0, 0)
        steps_done = self._totals.counts.steps
        done = steps_done - counted
        pace = (elapsed - warm) / done if done else elapsed / max(steps_done, 1)
        epochs = self._goal - self._epoch + 1 if self._unit == "epochs" and steps else 0
        return steps * pace + (epochs * self._behind / self._behinds if self._behinds else 0.0)

    @property
    def _step(self) -> int:
        """Steps of the epoch in progress that are done."""
        return self._step_before + self._totals.counts.steps

    def _wait_for_device(self) -> None:
        if self._device.type != "cpu":
            torch.get_device_module(self._device).synchronize(self._device)
