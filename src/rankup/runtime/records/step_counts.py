"""What steps count: one small object, and two readings of the clock for each batch. And the totals of these counts.

All else is worked out when a record is due: most of what records cost a small network are the cache lines that they
touch between its kernels (``python -m benchmarks records``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankup.runtime.data.portions import Batch
    from rankup.runtime.records.arrival import Arrival

NEVER = float("-inf")
_clock = time.perf_counter


# Of the finished steps of a loop: global step, steps, seconds by the clock of the loop, seconds of them waiting for
# data, samples of this rank. It is replaced as a whole, so that another thread reads what fits together.
Done = tuple[int, int, float, float, int]


class StepCounts:
    """Of one loop on this rank. Times are readings of ``time.perf_counter``."""

    __slots__ = (
        *("arrival", "asked", "began", "done", "due", "got"),
        *("offset", "pace", "samples", "steps", "total", "waited"),
    )

    def __init__(self, global_step: int, arrival: Arrival | None) -> None:
        self.asked = _clock()  # for a batch
        self.got = NEVER  # a batch
        self.due = NEVER  # when a step must do more than count
        self.began = NEVER  # the first step of the portion at hand
        self.pace = 0.0  # seconds of a step, lately
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
        self.began = self.got = now = _clock()
        self.waited += now - self.asked
        self.samples += samples

    def batch_done(self) -> None:
        """The loop's body is done with a batch that is not the last of its step, and asks for the next one."""
        self.asked = _clock()

    def steps_done(self, steps: int, batch: Batch, global_step: int) -> bool:
        """So many steps with batches that count as this one are done, and the loop asks for the next batch. Whether a
        record is due. The samples of the first one are counted already."""
        self.asked = now = _clock()
        self.pace = (now - self.began) / steps
        self.total += steps * batch.total
        self.samples += (steps - 1) * batch.samples
        self.steps += steps
        self.done = (global_step, self.steps, now + self.offset, self.waited, self.samples)
        if self.arrival is not None:
            self.arrival.steps_done(steps, now)
        return now >= self.due


#: In steps; in saves, as long as the training waits for them; in the code after the epochs' steps.
TRAINED, SAVING, EVALUATING = "trained", "saving", "evaluating"


class TimeSpent:
    """Device-seconds of one training, over all attempts, by the clock of rank 0; ``core.goodput`` adds them up.

    They are in the snapshots: what an attempt spent after the one from which the next attempt resumes is missing there,
    and so counts as lost.
    """

    def __init__(self, devices: int) -> None:
        self._devices = devices
        self._spent = dict.fromkeys((TRAINED, SAVING, EVALUATING), 0.0)

    def add(self, what: str, seconds: float, *, within: str = "") -> None:
        """``within``: the time also counts, or will count, as that, and is taken off it."""
        self._spent[what] += seconds * self._devices
        if within:
            self._spent[within] -= seconds * self._devices

    def state_dict(self, training_since: float = 0.0) -> dict[str, float]:
        """``training_since``: seconds of steps that nobody has added yet."""
        now = {**self._spent, TRAINED: self._spent[TRAINED] + training_since * self._devices}
        return {what: round(seconds, 3) for what, seconds in now.items()}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self._spent.update(state)


class TrainingTotals:
    """Seconds, samples and waiting of one training on this rank: over all its attempts, of the epoch in progress, and
    of this loop. They are in the snapshots of every rank: a resumed run goes on with those of the attempts before. The
    clock stands still between the epochs' steps.

    ``counts`` is what its newest loop counts; ``wait`` returns when the device has
    done what it was given.
    """

    def __init__(self, wait: Callable[[], None], devices: int) -> None:
        self._wait = wait
        self._spent = TimeSpent(devices)
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
            "spent": self.spent(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._seconds, self._samples = state["seconds"], state["samples"]
        self._epoch_seconds, self._epoch_waited = state["epoch_seconds"], state["epoch_waited"]
        self._epoch_samples_before = state["epoch_samples"] - self.counts.total
        self._spent.load_state_dict(state["spent"])

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

    def spent(self) -> dict[str, float]:
        """Device-seconds by what they were spent on, over all attempts."""
        return self._spent.state_dict(self._now(0.0))

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
        self._spent.add(TRAINED, passed)
        self.tell_waited()

    def saved(self, seconds: float, *, after_epoch: bool) -> None:
        """The training has waited so long for a save: within its steps, after those of an epoch, or elsewhere."""
        steps = TRAINED if self._since is not None else ""
        self._spent.add(SAVING, seconds, within=EVALUATING if after_epoch else steps)

    def evaluated(self, seconds: float) -> None:
        """The code after the steps of an epoch is done; saves in it count as saves."""
        self._spent.add(EVALUATING, seconds)

    def end_epoch(self) -> None:
        self._samples += self.epoch_samples
        self._epoch_samples_before = -self.counts.total
        self._epoch_seconds = self._epoch_waited = 0.0

    def _now(self, counted: float) -> float:
        return counted if self._since is None else counted + time.perf_counter() - self._since
