"""Records of a training, as the loop itself sees it: steps, samples per second, time spent waiting for data, time left.

The loop calls in here once per step; between two records that costs two readings of the clock (``make bench``,
``steps``). Rank 0 writes steps and epochs; each rank writes what it does itself (``rank_records``). All ranks count,
because the counts are in the snapshots: a resumed run goes on with the seconds and samples of the attempts before. The
format is in docs/reference/records.md.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import re
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rankup.core.records import RecordWriter
from rankup.runtime.data.batches import Batch, DataFeed
from rankup.runtime.data.position import Position
from rankup.runtime.loggers.base import Logger, open_loggers
from rankup.runtime.records.logged_numbers import LoggedNumbers, as_json
from rankup.runtime.records.progress_display import ProgressDisplay
from rankup.runtime.records.rank_records import RankRecords

if TYPE_CHECKING:
    from rankup.core.rundir import RunDir

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
        self._main = rank == 0
        self._rank, self._world_size = rank, world_size
        self._own: RankRecords | None = None  # of the loop that is running
        self._device = device
        self._directory = directory
        self._name = name
        self._logger_names = loggers
        self._logged = LoggedNumbers()
        self._files = contextlib.ExitStack()
        self._steps_file: RecordWriter | None = None
        self._epochs_file: RecordWriter | None = None
        self._loggers: list[Logger] = []
        self._display: ProgressDisplay | None = None
        self._feed: DataFeed | None = None  # of the loop that is running
        self._place = (0, 0)  # epoch and step of the last step that was done
        self._said_step = -1
        self._facts: dict[str, Any] = {}
        self._due = float("-inf")
        # Over all attempts; those of the epoch in progress; and of this attempt.
        self.seconds, self.samples = 0.0, 0
        self._epoch_seconds, self._epoch_samples, self._epoch_waited = 0.0, 0, 0.0
        self._attempt_seconds, self._attempt_steps, self._attempt_samples = 0.0, 0, 0
        self._warm: tuple[float, int] | None = None  # seconds and samples of this attempt when it was warm
        self._resumed_at: float | None = None  # when the epoch's clock was started; None: it is stopped
        self._waited = self._said_waited = 0.0  # for data, in this attempt
        self._behind, self._behinds = 0.0, 0  # seconds of the code after the inner loop, and how often it ran
        self._trained_at: float | None = None

    # ------------------------------------------------------------- snapshots

    def state_dict(self) -> dict[str, Any]:
        return {
            "seconds": self._now(self.seconds),
            "samples": self.samples,
            "epoch_seconds": self._now(self._epoch_seconds),
            "epoch_samples": self._epoch_samples,
            "epoch_waited": self._epoch_waited,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seconds, self.samples = state["seconds"], state["samples"]
        self._epoch_seconds, self._epoch_samples = state["epoch_seconds"], state["epoch_samples"]
        self._epoch_waited = state["epoch_waited"]

    def _now(self, counted: float) -> float:
        return counted if self._resumed_at is None else counted + time.perf_counter() - self._resumed_at

    @property
    def epoch_seconds(self) -> float:
        """Training seconds of the epoch in progress, over all attempts."""
        return self._now(self._epoch_seconds)

    @property
    def epoch_samples(self) -> int:
        """Samples of the epoch in progress, over all ranks and attempts."""
        return self._epoch_samples

    # -------------------------------------------------------- called by a loop

    def begin(
        self,
        feed: DataFeed,
        unit: str,
        goal: int,
        global_step: int,
        facts: Mapping[str, Any],
        models: list[torch.nn.Module],
    ) -> None:
        """A loop over ``goal`` epochs or steps begins, at ``global_step`` of the run; the state is restored."""
        self._unit, self._goal, self._feed = unit, goal, feed
        self._facts = dict(facts)
        self._attempt_seconds, self._attempt_steps, self._attempt_samples = 0.0, 0, 0
        self._warm, self._waited, self._said_waited = None, 0.0, 0.0
        self._logged.end_epoch()  # what was logged before the loop is no number of its first epoch
        if self._directory is not None:
            path = self._directory.records / f"rank-{self._rank}.jsonl"
            self._own = RankRecords(path, self._rank, self._world_size, self._device, self._name)
            self._own.begin(models, global_step)
        if not self._main:
            return
        self._attempt = 1
        if self._directory is not None:
            records = self._directory.records
            self._attempt = _attempt_of_this_process(records / "steps.jsonl")
            self._steps_file = self._files.enter_context(RecordWriter(records / "steps.jsonl"))
            self._epochs_file = self._files.enter_context(RecordWriter(records / "epochs.jsonl"))
            began = {"attempt": self._attempt, "training": self._name, "global_step": global_step}
            self._steps_file.write("begin", **began, unit=unit, length=goal, facts=self._facts)
        self._open_loggers()
        self._display = ProgressDisplay.for_this_process(in_run=self._directory is not None)
        if self._display is not None:
            self._files.callback(self._display.close)

    def timed_batches(self, batches: Generator[Batch, None, None]) -> Generator[Batch, None, None]:
        """``batches``, and how long the loop waited for each."""
        clock, own = time.perf_counter, self._own
        asked = self._resumed_at = clock()
        if own is not None:
            own.begin_steps(asked)
        try:
            for batch in batches:
                got = clock()
                self._waited += got - asked
                if own is not None:
                    own.got = got
                    own.samples += batch.samples
                yield batch
                asked = clock()
                if own is not None:
                    own.asked = asked
        finally:
            batches.close()
            self._stop_clock()

    def step_done(self, batch: Batch, global_step: int) -> None:
        """After the last batch of each step."""
        self._attempt_steps += 1
        self._epoch_samples += batch.total
        self._attempt_samples += batch.total
        position = self._feed.position if self._feed is not None else Position()
        self._place = (position.epoch + 1, position.step)
        now = time.perf_counter()
        if self._warm is None and self._attempt_steps == WARM_UP_STEPS:
            self._wait_for_device()
            self._warm = (self._attempt_elapsed(time.perf_counter()), self._attempt_samples)
        if self._own is not None:
            self._own.step_done(now, global_step, self._attempt_elapsed(now), self._waited)
            if now >= self._own.loss_due:
                self._own.loss, self._own.loss_due = self._logged.latest_loss(), now + SHORTEST
        if self._main and now >= self._due:
            self._say_step(now, global_step)

    def epoch_trained(self) -> None:
        """The epoch's last step is done. The clock stops for the code after the inner loop."""
        self._wait_for_device()
        self._stop_clock()
        self._trained_at = time.perf_counter()
        if self._own is not None:
            self._own.trained = self._trained_at

    def epoch_done(self, index: int, global_step: int, metrics: Mapping[str, Any]) -> None:
        """The code after the inner loop is done as well."""
        if self._trained_at is not None:
            self._behind, self._behinds = (
                self._behind + time.perf_counter() - self._trained_at,
                self._behinds + 1,
            )
            self._trained_at = None
        if self._main:
            self._say_last_step(global_step)
            for step, numbers in self._logged.take().items():
                # The record of the epoch tells what was logged after its last step.
                (self._send if step == global_step else self._write_logged)(step, numbers)
            shown = {name: as_json(float(value)) for name, value in metrics.items()} | self._logged.latest()
            fields = {
                **{"attempt": self._attempt, "training": self._name, "epoch": index + 1},
                "epochs": self._goal if self._unit == "epochs" else None,
                **{"steps": self._place[1], "global_step": global_step, "samples": self._epoch_samples},
                **{"seconds": self._epoch_seconds, "data_s": self._epoch_waited, "metrics": shown},
            }
            if self._epochs_file is not None:
                self._epochs_file.write("epoch", **fields)
        self._logged.end_epoch()
        self.samples += self._epoch_samples
        self._epoch_seconds, self._epoch_samples, self._epoch_waited = 0.0, 0, 0.0

    def end(self, global_step: int, *, complete: bool) -> None:
        """The loop is over, or was left (not ``complete``)."""
        self._stop_clock()
        if self._own is not None:
            self._own.end()
            self._own = None
        if self._main:
            self._say_last_step(global_step)
            self._tell_logged()
        if self._steps_file is not None and complete and self._attempt_steps:
            warm_seconds, warm_samples = self._warm or (0.0, 0)
            timed = {
                "seconds": self._attempt_seconds,
                "samples": self._attempt_samples,
                "steps": self._attempt_steps,
                "warm_seconds": self._attempt_seconds - warm_seconds,
                "warm_samples": self._attempt_samples - warm_samples,
                "data_s": self._waited,
            }
            self._steps_file.write("end", attempt=self._attempt, global_step=global_step, **timed)
        self._files.close()
        self._steps_file = self._epochs_file = self._display = self._feed = None

    # --------------------------------------------------------- called by users

    def log(self, numbers: Mapping[str, Any], step: int) -> None:
        """``numbers`` at ``step``. Outside of a loop they are written at once."""
        self._logged.add(numbers, step)
        if self._feed is None and self._main:
            self._open_loggers()
            self._tell_logged()

    # ------------------------------------------------------------------ inside

    def _say_step(self, now: float, global_step: int) -> None:
        elapsed = self._attempt_elapsed(now)
        self._due = now + min(LONGEST, max(SHORTEST, elapsed / 1000))
        left_steps = self._steps_left()
        logged = self._logged.take()
        samples, seconds = self._epoch_samples, self._now(self._epoch_seconds)
        told = logged.pop(global_step, {})
        record = {
            **{"attempt": self._attempt, "training": self._name, "epoch": self._place[0]},
            "epochs": self._goal if self._unit == "epochs" else None,
            **{"step": self._place[1], "steps": self._feed.steps if self._feed else None},
            "global_step": global_step,
            "goal": None if left_steps is None else global_step + left_steps,
            "samples": samples,
            "samples_per_s": samples / max(seconds, 1e-9),
            "data_s": self._waited - self._said_waited,
            "seconds": self._now(self.seconds),
            "left": None if left_steps is None else self._seconds_left(left_steps, elapsed),
            "metrics": told,
        }
        self._epoch_waited += self._waited - self._said_waited
        self._said_waited = self._waited
        for step, numbers in logged.items():
            self._write_logged(step, numbers)
        if self._steps_file is not None:
            self._steps_file.write("step", **record)
        self._send(global_step, told)
        self._said_step = global_step
        if self._display is not None:
            self._display.show({**record, "metrics": self._logged.latest()})

    def _say_last_step(self, global_step: int) -> None:
        if self._attempt_steps and self._said_step != global_step:
            self._say_step(time.perf_counter(), global_step)

    def _tell_logged(self) -> None:
        """Write what was logged and no record has told: after a break, or outside of a loop."""
        for step, numbers in self._logged.take().items():
            self._write_logged(step, numbers)

    def _write_logged(self, step: int, numbers: dict[str, float | None]) -> None:
        self._send(step, numbers)
        if self._directory is None:
            return
        fields = {"training": self._name, "global_step": step, "metrics": numbers}
        if self._steps_file is not None:
            self._steps_file.write("log", attempt=self._attempt, **fields)
            return
        path = self._directory.records / "steps.jsonl"
        with RecordWriter(path) as records:
            records.write("log", attempt=_attempt_of_this_process(path), **fields)

    def _send(self, step: int, numbers: Mapping[str, float | None]) -> None:
        """To the loggers."""
        known = {name: math.nan if value is None else value for name, value in numbers.items()}
        for logger in self._loggers if known else ():
            logger.log(step, known)

    def _open_loggers(self) -> None:
        """Once: several loops of a run log to the same place, until the process ends."""
        if self._loggers or not self._logger_names:
            return
        folder = self._directory.path if self._directory is not None else Path.cwd()
        self._loggers = open_loggers(self._logger_names, folder, {**self._facts, "training": self._name})
        for logger in self._loggers:
            atexit.register(logger.close)

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
        done = self._attempt_steps - counted
        pace = (elapsed - warm) / done if done else elapsed / max(self._attempt_steps, 1)
        epochs = self._goal - self._place[0] + 1 if self._unit == "epochs" and steps else 0
        return steps * pace + (epochs * self._behind / self._behinds if self._behinds else 0.0)

    def _attempt_elapsed(self, now: float) -> float:
        return self._attempt_seconds + (0.0 if self._resumed_at is None else now - self._resumed_at)

    def _stop_clock(self) -> None:
        if self._resumed_at is None:
            return
        passed = time.perf_counter() - self._resumed_at
        self._resumed_at = None
        self.seconds += passed
        self._epoch_seconds += passed
        self._attempt_seconds += passed
        self._epoch_waited += self._waited - self._said_waited
        self._said_waited = self._waited

    def _wait_for_device(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


# Of the run directories that this process writes to: several loops and trainings are one attempt.
_ATTEMPTS: dict[Path, int] = {}


def _attempt_of_this_process(path: Path) -> int:
    """The number of this attempt in ``path``, from 1."""
    if path not in _ATTEMPTS:
        written = path.read_bytes() if path.exists() else b""
        before = re.findall(rb'"kind": "begin", "time": [^,]*, "attempt": (\d+)', written)
        _ATTEMPTS[path] = max(map(int, before), default=0) + 1
    return _ATTEMPTS[path]
