"""Where rank 0 tells a training: the files of the run directory, the loggers, and the bar or lines for people."""

from __future__ import annotations

import atexit
import contextlib
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankup.core.records import RecordWriter
from rankup.core.rundir import progress_is_shown_elsewhere

if TYPE_CHECKING:
    from rankup.core.rundir import RunDir
    from rankup.runtime.loggers.base import Logger
    from rankup.runtime.records.progress_display import ProgressDisplay


class Outputs:
    """Of one training. ``directory`` None: no files, but the bar and the loggers all the same."""

    def __init__(self, directory: RunDir | None, name: str, loggers: tuple[str, ...]) -> None:
        self.attempt = 1
        self._directory = directory
        self._name = name
        self._logger_names = loggers
        self._facts: dict[str, Any] = {}
        self._loggers: list[Logger] = []
        self._begun_at = 0  # the step at which the loop began
        self._repeats = False
        self._trains = False  # whether this attempt has told of a step
        self._files = contextlib.ExitStack()
        self._steps_file: RecordWriter | None = None
        self._epochs_file: RecordWriter | None = None
        self._display: ProgressDisplay | None = None

    def begin(
        self,
        unit: str,
        goal: int,
        global_step: int,
        facts: Mapping[str, Any],
        spent: Mapping[str, float],
        *,
        repeats: bool,
    ) -> None:
        """A loop begins, with what was ``spent`` before. ``repeats``: what it tells was told in an earlier attempt."""
        self._facts, self._begun_at = dict(facts), global_step
        self._repeats = repeats
        if self._directory is not None and not repeats:
            records = self._directory.records
            self.attempt = _attempt_of_this_process(records / "steps.jsonl")
            self._steps_file = self._files.enter_context(RecordWriter(records / "steps.jsonl"))
            self._epochs_file = self._files.enter_context(RecordWriter(records / "epochs.jsonl"))
            about = {**self._about(), "global_step": global_step, "unit": unit, "length": goal}
            self._steps_file.write("begin", **about, spent=spent, facts=self._facts)
        self._open_loggers()
        if not progress_is_shown_elsewhere():
            from rankup.runtime.records.progress_display import ProgressDisplay

            self._display = ProgressDisplay.for_this_process(in_run=self._directory is not None)
        if self._display is not None:
            self._files.callback(self._display.close)

    def step(self, record: dict[str, Any], latest: Mapping[str, float | None]) -> None:
        """``record`` of a step, with what was logged in it; the display shows the ``latest`` of each number."""
        if self._steps_file is not None:
            self._steps_file.write("step", **self._about(), **record)
        self._send(record["global_step"], record["metrics"])
        if self._display is not None:
            self._display.show({**self._about(), **record, "metrics": latest})

    def log(self, step: int, numbers: Mapping[str, float | None]) -> None:
        """Numbers of a step that no other record tells; outside of a loop as well."""
        self._open_loggers()
        self._send(step, numbers)
        if self._directory is None or self._repeats:
            return
        fields = {"training": self._name, "global_step": step, "metrics": numbers}
        if self._steps_file is not None:
            self._steps_file.write("log", attempt=self.attempt, **fields)
            return
        path = self._directory.records / "steps.jsonl"
        with RecordWriter(path) as records:
            records.write("log", attempt=_attempt_of_this_process(path), **fields)

    def log_with_epoch(self, step: int, numbers: Mapping[str, float | None]) -> None:
        """Numbers that the epoch's own record tells."""
        self._send(step, numbers)

    def epoch(self, record: Mapping[str, Any]) -> None:
        if self._epochs_file is not None:
            self._epochs_file.write("epoch", **self._about(), **record)

    def end(self, record: Mapping[str, Any] | None) -> None:
        """The loop is over. ``record`` None: it was left, or did no step."""
        if self._steps_file is not None and record is not None:
            self._steps_file.write("end", **self._about(), **record)
        self._repeats = False
        self._files.close()
        self._steps_file = self._epochs_file = self._display = None

    # ------------------------------------------------------------------ inside

    def _about(self) -> dict[str, Any]:
        return {"attempt": self.attempt, "training": self._name}

    def _send(self, step: int, numbers: Mapping[str, float | None]) -> None:
        if self._directory is not None and not self._trains and not self._repeats and step > self._begun_at:
            self._trains = True
            for logger in self._loggers:
                logger.drop_after(self._begun_at)
        if self._repeats:
            return
        known = {name: math.nan if value is None else value for name, value in numbers.items()}
        for logger in self._loggers if known else ():
            logger.log(step, known)

    def _open_loggers(self) -> None:
        """Once: several loops of a run log to the same place, until the process ends."""
        if self._loggers or not self._logger_names:
            return
        from rankup.runtime.loggers.base import open_loggers
        from rankup.runtime.loggers.earlier import EarlierAttempts

        folder = self._directory.path if self._directory is not None else Path.cwd()
        training = self._name or _order_of_this_process(folder)
        # Records have no order: of a second training without a name nobody knows what was told.
        known = self._directory is not None and training == self._name
        earlier = EarlierAttempts(folder if known else None, training)
        self._loggers = open_loggers(
            self._logger_names, folder, {**self._facts, "training": training}, earlier
        )
        for logger in self._loggers:
            atexit.register(logger.close)


# Of the folders of loggers: how many trainings without a name log there. As their snapshots, order tells them apart.
_UNNAMED: dict[Path, int] = {}


def _order_of_this_process(folder: Path) -> str:
    """ "" for the first training without a name, then ``training-2`` and so on."""
    number = _UNNAMED[folder] = _UNNAMED.get(folder, 0) + 1
    return "" if number == 1 else f"training-{number}"


# Of the run directories that this process writes to: several loops and trainings are one attempt.
_ATTEMPTS: dict[Path, int] = {}


def _attempt_of_this_process(path: Path) -> int:
    """The number of this attempt in ``path``, from 1."""
    if path not in _ATTEMPTS:
        written = path.read_bytes() if path.exists() else b""
        before = re.findall(rb'"kind": "begin", "time": [^,]*, "attempt": (\d+)', written)
        _ATTEMPTS[path] = max(map(int, before), default=0) + 1
    return _ATTEMPTS[path]
