"""A run that is watched: its records as they grow, its alerts, and what the scheduler says of it."""

from __future__ import annotations

import time
from pathlib import Path

from rankup.batch.queue import query_statuses
from rankup.batch.status import RunStatus
from rankup.batch.store import SubmittedRun, find, is_local, is_run
from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.monitor.alerts.watch import AlertWatch
from rankup.monitor.frame import Frame, frame
from rankup.monitor.reader import RunReader
from rankup.run.markers import read_markers

HISTORY = 60  # values of a sparkline
_ASK_SOON, _ASK_AGAIN = 5.0, 60.0  # seconds between two questions to the scheduler
_SILENT = 20.0  # seconds without a record after which it is asked again
_PATIENCE = 3.0


class RunWatch:
    """``frame`` reads what is new. ``job`` is None for a directory that has records and is not a run of ours."""

    def __init__(self, job: SubmittedRun | None, directory: RunDir) -> None:
        self._job, self._directory = job, directory
        self.path = directory.path
        self.reader = RunReader(directory)
        self._alerts = AlertWatch()
        self._status: RunStatus | None = None
        self._asked = float("-inf")

    @classmethod
    def of(cls, target: str, runs_root: Path) -> RunWatch:
        """Raises RankupError if there is no such run, or if it is an array and no task is named."""
        path = Path(target) if target else None
        if path is not None and (path / "records").is_dir() and not (is_run(path) or is_local(path)):
            return cls(None, RunDir(path.absolute()))
        job = find(target, runs_root)
        tasks = job.tasks()
        if not tasks:
            return cls(job, job.run)
        if job.task is None:
            raise RankupError(
                "array-of-runs",
                "the job is an array: each of its tasks is a run",
                context=str(job.run.path),
                hint=f"name one of them, by its id or its directory: {next(iter(tasks.values()))}",
            )
        return cls(job, RunDir(tasks[job.task]))

    def frame(self, now: float | None = None) -> Frame:
        """What the run does now. Raises RankupError if its directory is gone."""
        now = time.time() if now is None else now
        self.reader.update()
        run = self.reader.run
        times = run.times()
        silent = now - times[1] if times is not None else float("inf")
        state, reason, ended = self._state(now, silent)
        alerts = self._alerts.end(run) if ended else self._alerts.look(run, now)
        name = self._job.spec.name if self._job is not None else self._directory.path.name
        return frame(
            run,
            now,
            name=name,
            path=str(self._directory.path),
            state=state,
            reason=reason,
            ended=ended,
            alerts=alerts,
            width=HISTORY,
        )

    def _state(self, now: float, silent: float) -> tuple[str, str, bool]:
        """(word, reason, whether the run has ended)."""
        if self._job is None:
            outcome = read_markers(self._directory.path).outcome
            if outcome is not None and outcome != "requeue":
                return outcome, "", True
            return ("running", "", False) if silent < _SILENT else ("unknown", "no new records", False)
        known = self._status
        settled = known is not None and known.state.value == "running" and silent < _SILENT
        over = read_markers(self._directory.path).final
        pause = _ASK_AGAIN if settled and not over else _ASK_SOON
        if known is None or now - self._asked >= pause:
            (known,), _ = query_statuses([self._job], _PATIENCE)
            self._status, self._asked = known, now
        return known.word, known.reason, known.state.ended and (known.settled or silent > _SILENT)
