"""Records of a training, as the loop itself sees it: steps, samples per second, time spent waiting for data, time left.

The loop calls in here once per step; between two records that costs two readings of the clock (``make bench``,
``steps``). Rank 0 writes; the other ranks count alone, because the counts are in the snapshots: a resumed run goes on
with the seconds and samples of the attempts before. The format is in docs/reference/records.md.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rankup.core.records import RecordWriter
from rankup.errors import RankupError
from rankup.runtime.data.batches import Batch, DataFeed
from rankup.runtime.loggers.base import Logger, open_loggers
from rankup.runtime.records.progress_display import ProgressDisplay

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
        self, rank: int, device: torch.device, directory: RunDir | None, name: str, loggers: tuple[str, ...]
    ) -> None:
        self._main = rank == 0
        self._device = device
        self._directory = directory
        self._name = name
        self._logger_names = loggers
        self._logged: dict[str, float | torch.Tensor] = {}
        self._files = contextlib.ExitStack()
        self._steps_file: RecordWriter | None = None
        self._epochs_file: RecordWriter | None = None
        self._loggers: list[Logger] = []
        self._display: ProgressDisplay | None = None
        self._due = float("-inf")
        # Over all attempts; those of the epoch in progress; and of this attempt.
        self.seconds, self.samples = 0.0, 0
        self._epoch_seconds, self._epoch_samples, self._epoch_waited = 0.0, 0, 0.0
        self._attempt_seconds, self._attempt_steps, self._attempt_samples = 0.0, 0, 0
        self._warm: tuple[float, int] | None = None  # seconds and samples of this attempt when it was warm
        self._resumed_at: float | None = (
            None  # when the clock of the epoch in progress was started; None: it stands
        )
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

    def begin(self, feed: DataFeed, unit: str, goal: int, global_step: int, facts: Mapping[str, Any]) -> None:
        """A loop over ``goal`` epochs or steps begins, at ``global_step`` of the run; the state is restored."""
        self._unit, self._goal, self._feed = unit, goal, feed
        self._facts = dict(facts)
        self._attempt_seconds, self._attempt_steps, self._attempt_samples = 0.0, 0, 0
        self._warm, self._waited, self._said_waited = None, 0.0, 0.0
        if not self._main:
            return
        if self._directory is not None:
            records = self._directory.records
            self._steps_file = self._files.enter_context(RecordWriter(records / "steps.jsonl"))
            self._epochs_file = self._files.enter_context(RecordWriter(records / "epochs.jsonl"))
            self._attempt = _attempts(records / "steps.jsonl") + 1
            began = {"attempt": self._attempt, "training": self._name, "global_step": global_step}
            self._steps_file.write("begin", **began, unit=unit, length=goal, facts=self._facts)
        else:
            self._attempt = 1
        folder = self._directory.path if self._directory is not None else Path.cwd()
        self._loggers = open_loggers(self._logger_names, folder, self._facts)
        self._display = ProgressDisplay.for_this_process(in_run=self._directory is not None)
        if self._display is not None:
            self._files.callback(self._display.close)

    def timed_batches(self, batches: Generator[Batch, None, None]) -> Generator[Batch, None, None]:
        """``batches``, and how long the loop waited for each."""
        clock = time.perf_counter
        asked = self._resumed_at = clock()
        try:
            for batch in batches:
                self._waited += clock() - asked
                yield batch
                asked = clock()
        finally:
            batches.close()
            self._stop_clock()

    def step_done(self, batch: Batch, global_step: int) -> None:
        """After the last batch of each step."""
        self._attempt_steps += 1
        self._epoch_samples += batch.total
        self._attempt_samples += batch.total
        now = time.perf_counter()
        if self._warm is None and self._attempt_steps == WARM_UP_STEPS:
            self._wait_for_device()
            self._warm = (self._attempt_elapsed(time.perf_counter()), self._attempt_samples)
        if self._main and now >= self._due:
            self._say_step(now, global_step)

    def epoch_trained(self) -> None:
        """The epoch's last step is done. The clock stops for the code after the inner loop."""
        self._wait_for_device()
        self._stop_clock()
        self._trained_at = time.perf_counter()

    def epoch_done(self, index: int, global_step: int, metrics: Mapping[str, Any]) -> None:
        """The code after the inner loop is done as well."""
        if self._trained_at is not None:
            self._behind, self._behinds = (
                self._behind + time.perf_counter() - self._trained_at,
                self._behinds + 1,
            )
            self._trained_at = None
        position = self._feed.position
        if self._main:
            numbers = {**_numbers(metrics), **_numbers(self._logged)}
            fields = {
                **{"attempt": self._attempt, "training": self._name, "epoch": index + 1},
                "epochs": self._goal if self._unit == "epochs" else None,
                **{"steps": position.step, "global_step": global_step, "samples": self._epoch_samples},
                **{"seconds": self._epoch_seconds, "data_s": self._epoch_waited, "metrics": numbers},
            }
            if self._epochs_file is not None:
                self._epochs_file.write("epoch", **fields)
            for logger in self._loggers:
                logger.log(global_step, numbers)
        self._logged = {}
        self.samples += self._epoch_samples
        self._epoch_seconds, self._epoch_samples, self._epoch_waited = 0.0, 0, 0.0

    def end(self, global_step: int, *, complete: bool) -> None:
        """The loop is over, or was left (not ``complete``)."""
        self._stop_clock()
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
            numbers = _numbers(self._logged)
            self._steps_file.write(
                "end", attempt=self._attempt, global_step=global_step, **timed, metrics=numbers
            )
        self._files.close()
        self._steps_file = self._epochs_file = self._display = None
        for logger in self._loggers:
            logger.close()
        self._loggers = []

    # --------------------------------------------------------- called by users

    def log(self, numbers: Mapping[str, Any]) -> None:
        """Keep the newest of each; a tensor stays on its device until a record is due."""
        for name, value in numbers.items():
            if isinstance(value, torch.Tensor):
                if value.numel() != 1:
                    raise RankupError(
                        "not-a-number",
                        f"run.log({name}=…) got a tensor of shape {tuple(value.shape)}, and a metric is one number",
                        hint=f"run.log({name}={name}.mean())",
                        exit_code=1,
                    )
                self._logged[name] = value.detach()
            else:
                try:
                    self._logged[name] = float(value)
                except (TypeError, ValueError):
                    raise RankupError(
                        "not-a-number",
                        f"run.log({name}=…) got a {type(value).__name__}, and a metric is one number",
                        exit_code=1,
                    ) from None

    # ------------------------------------------------------------------ inside

    def _say_step(self, now: float, global_step: int) -> None:
        elapsed = self._attempt_elapsed(now)
        self._due = now + min(LONGEST, max(SHORTEST, elapsed / 1000))
        position, epoch_seconds = self._feed.position, self._now(self._epoch_seconds)
        numbers = _numbers(self._logged)
        left_steps = self._steps_left()
        record = {
            **{"attempt": self._attempt, "training": self._name, "epoch": position.epoch + 1},
            "epochs": self._goal if self._unit == "epochs" else None,
            **{"step": position.step, "steps": self._feed.steps, "global_step": global_step},
            "goal": None if left_steps is None else global_step + left_steps,
            "samples": self._epoch_samples,
            "samples_per_s": self._epoch_samples / max(epoch_seconds, 1e-9),
            "data_s": self._waited - self._said_waited,
            "seconds": self._now(self.seconds),
            "left": None if left_steps is None else self._seconds_left(left_steps, elapsed),
            "metrics": numbers,
        }
        self._epoch_waited += self._waited - self._said_waited
        self._said_waited = self._waited
        if self._steps_file is not None:
            self._steps_file.write("step", **record)
        for logger in self._loggers:
            logger.log(global_step, numbers)
        if self._display is not None:
            self._display.show(record)

    def _steps_left(self) -> int | None:
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
        epochs = self._goal - self._feed.position.epoch if self._unit == "epochs" else 0
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


def _numbers(logged: Mapping[str, Any]) -> dict[str, float]:
    """What a record can hold: Python's JSON has NaN and infinity too."""
    return {name: float(value) for name, value in logged.items()}


def _attempts(path: Path) -> int:
    """How many attempts have begun to write to ``path``."""
    return path.read_bytes().count(b'{"kind": "begin"')
