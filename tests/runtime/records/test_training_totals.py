"""Seconds and samples of a training, and when its clock runs."""

from __future__ import annotations

import time

from rankup.runtime.data.portions import Batch
from rankup.runtime.records.step_counts import StepCounts, TrainingTotals

WAIT = 0.05
BATCH = Batch(None, samples=4, total=8, last=True)


def train(totals: TrainingTotals, steps: int, *, leaves: bool = False) -> None:
    counts = totals.start()
    for done in range(1, steps + 1):
        counts.batch_got(4)
        counts.steps_done(1, BATCH, done)
    totals.stop(waits=not leaves)


def test_what_the_device_still_has_to_do_belongs_to_the_epoch():
    totals = TrainingTotals(lambda: time.sleep(WAIT), 1)
    train(totals, 2)
    assert totals.epoch_seconds >= WAIT


def test_a_loop_that_is_left_waits_for_no_device():
    """It may never answer: the loop may be left because of its error."""
    waits: list[None] = []
    totals = TrainingTotals(lambda: waits.append(None), 1)
    train(totals, 2, leaves=True)
    assert not waits and totals.epoch_seconds > 0


def test_the_clock_stands_between_epochs():
    totals = TrainingTotals(lambda: None, 1)
    train(totals, 2)
    before = totals.seconds
    totals.end_epoch()
    time.sleep(WAIT)
    assert totals.seconds == before and (totals.samples, totals.epoch_samples) == (16, 0)


def test_a_resumed_training_goes_on_with_the_sums_of_the_attempts_before():
    totals = TrainingTotals(lambda: None, 1)
    train(totals, 3)
    totals.end_epoch()
    train(totals, 2)
    saved = totals.state_dict()
    resumed = TrainingTotals(lambda: None, 1)
    resumed.load_state_dict(saved)
    resumed.begin_loop(StepCounts(5, None))
    train(resumed, 1)
    assert (resumed.samples, resumed.epoch_samples, resumed.counts.total) == (24, 24, 8)
    assert resumed.seconds > saved["seconds"] > saved["epoch_seconds"] > 0


def test_a_second_loop_counts_from_zero_and_the_epoch_goes_on():
    totals = TrainingTotals(lambda: None, 1)
    train(totals, 2)
    totals.begin_loop(StepCounts(2, None))
    train(totals, 1)
    assert (totals.counts.steps, totals.counts.total, totals.epoch_samples) == (1, 8, 24)
