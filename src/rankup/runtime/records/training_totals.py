"""Seconds, samples and waiting of a training: over all its attempts, of the epoch in progress, and of this loop.

They are in the snapshots of every rank: a resumed run goes on with those of the attempts before. The clock stands still
between the epochs' steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rankup.runtime.records.step_counts import StepCounts


class TrainingTotals:
    """Of one training on this rank. ``counts`` is what its newest loop counts; ``wait`` returns when the device has
    done what it was given.
    """

    def __init__(self, wait: Callable[[], None]) -> None:
        self._wait = wait
        self.counts = StepCounts(0, None)
        self._seconds, self._samples = 0.0, 0  # of epochs that are over, and of this one when the clock stood
        self._epoch_seconds, self._epoch_waited = 0.0, 0.0
        self._epoch_samples_before = (
            0  # what the loop's count lacks of this epoch; negative: has of earlier ones
        )
        self._loop_seconds = 0.0
        self._since: float | None = None  # when the clock was started; None: it stands
        self._told_waited = 0.0

    # ------------------------------------------------------------- snapshots

    def state_dict(self) -> dict[str, Any]:
        return {
            "seconds": self.seconds,
            "samples": self._samples,
            "epoch_seconds": self.epoch_seconds,
            "epoch_samples": self.epoch_samples,
            "epoch_waited": self._epoch_waited,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._seconds, self._samples = state["seconds"], state["samples"]
        self._epoch_seconds, self._epoch_waited = state["epoch_seconds"], state["epoch_waited"]
        self._epoch_samples_before = state["epoch_samples"] - self.counts.total

    # ----------------------------------------------------------------- totals

    @property
    def seconds(self) -> float:
        """Over all attempts."""
        return self._now(self._seconds)

    @property
    def samples(self) -> int:
        """Of epochs that are over, over all ranks and attempts."""
        return self._samples

    @property
    def epoch_seconds(self) -> float:
        """Of the epoch in progress, over all attempts."""
        return self._now(self._epoch_seconds)

    @property
    def epoch_samples(self) -> int:
        """Of the epoch in progress, over all ranks and attempts."""
        return self._epoch_samples_before + self.counts.total

    @property
    def epoch_waited(self) -> float:
        """Seconds of the epoch in progress in which this rank waited for data, but for what no record has told yet."""
        return self._epoch_waited

    @property
    def loop_seconds(self) -> float:
        """Of this loop."""
        return self._now(self._loop_seconds)

    def tell_waited(self) -> float:
        """Seconds of waiting since it was asked last, which count for the epoch in progress from now on."""
        untold = self.counts.waited - self._told_waited
        self._told_waited += untold
        self._epoch_waited += untold
        return untold

    # ------------------------------------------------------------ what happens

    def begin_loop(self, counts: StepCounts) -> None:
        self._epoch_samples_before += self.counts.total
        self.counts = counts
        self._loop_seconds = self._told_waited = 0.0

    def start(self) -> StepCounts:
        """Start the clock: an epoch's steps begin."""
        self._since = asked = time.perf_counter()
        self.counts.begin(asked, self._loop_seconds - asked)
        return self.counts

    def stop(self, *, waits: bool = False) -> None:
        """Stop the clock."""
        if self._since is None:
            return
        if waits:
            self._wait()
        passed = time.perf_counter() - self._since
        self._since = None
        self._seconds += passed
        self._epoch_seconds += passed
        self._loop_seconds += passed
        self.tell_waited()

    def end_epoch(self) -> None:
        self._samples += self.epoch_samples
        self._epoch_samples_before = -self.counts.total
        self._epoch_seconds = self._epoch_waited = 0.0

    def _now(self, counted: float) -> float:
        return counted if self._since is None else counted + time.perf_counter() - self._since
