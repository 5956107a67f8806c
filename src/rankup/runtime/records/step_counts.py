"""What a step counts: one small object, and two readings of the clock.

All else is worked out when a record is due: most of what records cost a small network are the cache lines that they
touch between its kernels (``python -m benchmarks records``).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rankup.runtime.records.arrival import Arrival

NEVER = float("-inf")
_clock = time.perf_counter


# Of the finished steps of a loop: global step, steps, seconds by the clock of the loop, seconds of them waiting for
# data, samples of this rank. It is replaced as a whole, so that another thread reads what fits together.
Done = tuple[int, int, float, float, int]


class StepCounts:
    """Of one loop on this rank. Times are readings of ``time.perf_counter``."""

    __slots__ = ("arrival", "asked", "done", "due", "got", "offset", "samples", "steps", "total", "waited")

    def __init__(self, global_step: int, arrival: Arrival | None) -> None:
        self.asked = _clock()  # for a batch
        self.got = NEVER  # a batch
        self.due = NEVER  # when a step must do more than count
        self.offset = 0.0  # what turns a reading into seconds of the loop, which stand still between epochs
        self.waited = 0.0  # seconds, for data
        self.steps = 0
        self.samples = 0  # of this rank
        self.total = 0  # samples of finished steps, over all ranks
        self.arrival = arrival
        self.done: Done = (global_step, 0, 0.0, 0.0, 0)

    def begin(self, now: float, offset: float) -> None:
        """An epoch's steps begin."""
        self.asked, self.offset = now, offset
        if self.arrival is not None:
            self.arrival.begin(now)

    def batch_got(self, samples: int) -> None:
        """The loop got a batch, with so many samples of this rank."""
        self.got = now = _clock()
        self.waited += now - self.asked
        self.samples += samples

    def batch_done(self) -> None:
        """The loop's body is done with a batch that is not the last of its step, and asks for the next one."""
        self.asked = _clock()

    def step_done(self, total: int, global_step: int) -> bool:
        """A step with ``total`` samples is done, and the loop asks for the next batch. Whether a record is due."""
        self.asked = now = _clock()
        self.total += total
        self.steps = steps = self.steps + 1
        self.done = (global_step, steps, now + self.offset, self.waited, self.samples)
        if self.arrival is not None:
            self.arrival.step_done(now)
        return now >= self.due
