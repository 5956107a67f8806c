"""One failure after another: submit a copy of the job, wait for a step, strike, wait for the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rankup.core.files import write_atomic
from rankup.core.plain_text import plain
from rankup.drill.attempts import Training, last_rank, last_step, training
from rankup.drill.copied_job import JobCopy, JobScript, copy_job
from rankup.drill.failures import Failure, Settings
from rankup.drill.queue import Cluster, QueueJob
from rankup.errors import RankupError

_POLL_S = 1.0
_GONE_S = 5.0  # without a job in the queue, before it is over: a successor may be on its way
_HELD_S = 60.0  # with none but held jobs
_MOST_ATTEMPTS = 12
_SUBMITTED_AGAIN = 2  # times, at most
_FEWEST_STEPS = 6


class DrillView(Protocol):
    """Shows progress."""

    def begins(self, what: str) -> None: ...

    def says(self, text: str) -> None: ...


@dataclass
class Outcome:
    """What became of the job. ``states``: those that the queue showed, in order. ``records``: what the scheduler says
    of each job at the end."""

    failure: Failure | None  # None: the uninterrupted run
    copy: JobCopy
    training: Training = field(default_factory=lambda: Training(()))
    step: int = 0  # after which it was struck
    not_tried: str = ""
    reached: bool = False  # that step
    again: int = 0
    endless: bool = False
    seconds: float = 0.0
    states: list[str] = field(default_factory=list)
    records: list[str] = field(default_factory=list)
    nodes: set[str] = field(default_factory=set)

    @property
    def struck(self) -> bool:
        return not self.not_tried

    def happened(self, name: str) -> bool:
        """Whether a process of an attempt has left a file of this name."""
        return any(self.copy.attempts.glob(f"*/{name}"))


@dataclass(frozen=True)
class DrillPlan:
    """``step``: after which the failures strike; None: two steps after the first save. ``again``: the command with
    which the user starts a job that has ended; "": the same submit."""

    job: JobScript
    arguments: tuple[str, ...]
    settings: Settings
    failures: tuple[Failure, ...]
    step: int | None = None
    again: str = ""
    leave_out: tuple[str, ...] = ()


class Drill:
    """``home``: where the copies go; all nodes must see it."""

    def __init__(self, plan: DrillPlan, cluster: Cluster, home: Path, view: DrillView) -> None:
        self.plan, self.queue, self.home, self.view = plan, cluster.queue, home, view
        self._lost = cluster.lost
        self._reference: Outcome | None = None

    @property
    def reference(self) -> Outcome:
        if self._reference is None:
            self._reference = self.uninterrupted("uninterrupted")
            steps = self._reference.training.last
            if steps < _FEWEST_STEPS:
                raise RankupError(
                    "too-short",
                    f"the job trains {steps} steps: too few for a drill, which strikes between them",
                    hint=f"give its program arguments with which it trains {_FEWEST_STEPS} steps or more",
                    exit_code=1,
                )
        return self._reference

    def uninterrupted(self, name: str) -> Outcome:
        """Raises ``RankupError`` if the job fails without a failure, or trains no step that can be recorded."""
        self.view.begins("without a failure")
        home = self.home / name
        made = copy_job(
            self.plan.job,
            home,
            reference=None,
            inside="",
            written=home / "written",
            leave_out=self.plan.leave_out,
        )
        (home / "written").mkdir(mode=0o700)
        outcome = Outcome(None, made)
        scene = _Scene(self, outcome, self.queue.limit(self.plan.settings.limit))
        scene.run()
        if not outcome.training.done:
            raise _does_not_train(outcome)
        self._refuse_elsewhere(made)
        return outcome

    def _refuse_elsewhere(self, made: JobCopy) -> None:
        """What lies elsewhere would be met by the next copy of the job."""
        names = {
            Path(name)
            for notes in made.attempts.glob("*/written-*.txt")
            for name in notes.read_text().splitlines()
            if name
        }
        caches = (str(Path.home() / ".cache"), str(Path.home() / ".config"))
        outside = [path for path in names if not path.is_relative_to(self.home)]
        away = sorted(
            str(path)
            for path in outside
            if (path.exists() or self._lost(path)) and not str(path).startswith(caches)
        )
        if away:
            raise RankupError(
                "writes-elsewhere",
                f"the job writes outside of its folder: {away[0]}"
                + (f", and {len(away) - 1} more" if len(away) > 1 else ""),
                context=str(self.plan.job.path),
                hint="each copy of the job must begin without what another one has saved: let it write below its own "
                "folder, by a relative path or by an argument",
                exit_code=1,
            )

    def strike_step(self) -> int:
        """Two steps after a save that leaves enough of the training, so that these are lost; else after a third."""
        train = self.reference.training
        if self.plan.step is not None:
            return min(self.plan.step, train.last - 1)
        later = [save + 2 for save in train.saves if save + 4 <= train.last]
        return later[0] if later else max(2, train.last // 3)

    def meet(self, failure: Failure) -> Outcome:
        """The outcome of one failure."""
        settings, step = self.plan.settings, self.strike_step()
        made = JobCopy(self.home / failure.name, self.home / failure.name / "job" / self.plan.job.path.name)
        why = failure.why_not(self.plan.job, self.queue, settings)
        if why:
            return Outcome(failure, made, not_tried=why)
        self.view.begins(failure.what)
        rank = last_rank(self.reference.copy.attempts / "1")
        inside = failure.inside(settings).format(step=step, rank=rank)
        made = copy_job(
            self.plan.job,
            made.home,
            reference=self.reference.copy.attempts / "1",
            inside=";".join(filter(None, (inside, f"pace {step} *"))),
            without_signal=failure.without_signal,
            leave_out=self.plan.leave_out,
        )
        left = self.reference.training.last - step
        pace = failure.window(settings) / max(1, left)
        if not inside or inside.startswith("full"):
            write_atomic(made.attempts / "pace", f"{pace:.3f}")
        outcome = Outcome(failure, made, step=step)
        _Scene(self, outcome, self.queue.limit(failure.limit(settings))).run()
        outcome.not_tried = outcome.not_tried or not_met(outcome, inside.partition(" ")[0])
        return outcome


def not_met(outcome: Outcome, mark: str) -> str:
    """Why the failure was none for this job; "" if it met it. ``mark``: the file that one from inside leaves."""
    failure, done = outcome.failure, outcome.training
    assert failure is not None
    if not outcome.reached:
        return f"the job did not come to step {outcome.step}"
    if mark and not outcome.happened(mark):
        return "it did not meet the training"
    if failure.stops and done.done and len(done.starts) == 1 and outcome.again == 0:
        return "it did not stop the job"
    return ""


class _Scene:
    """One copy of the job in the queue, until nothing of it is left there."""

    def __init__(self, drill: Drill, outcome: Outcome, options: list[str]) -> None:
        self.queue, self.settings = drill.queue, drill.plan.settings
        self.folder = outcome.copy.folder
        self._plan, self._view = drill.plan, drill.view
        self._outcome, self._options = outcome, options
        self._ids: list[str] = []
        self._steps = drill.reference.training.last if outcome.failure is not None else 0

    def run(self) -> None:
        began = time.monotonic()
        try:
            self._submit()
            self._watch()
            while not self._finished() and self._outcome.again < _SUBMITTED_AGAIN and self._outcome.failure:
                self._outcome.again += 1
                self._view.says("the job has ended, and is submitted again")
                self._start_again()
                self._watch()
        finally:
            for job in self._look():
                self.queue.cancel(job.id)
        outcome = self._outcome
        outcome.training, outcome.seconds = (
            training(outcome.copy.attempts, self._steps),
            time.monotonic() - began,
        )
        outcome.records = [f"job {job}: {said}" for job in self._ids if (said := self.queue.record(job))]

    # ------------------------------------------------------------------ what a failure uses (``failures.Scene``)

    def jobs(self) -> list[QueueJob]:
        return self._look()

    def job(self) -> QueueJob | None:
        return next((job for job in self._look() if job.running), None)

    def submit_again(self) -> None:
        self._submit()

    def wait(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends and not until():
            time.sleep(_POLL_S)

    # ------------------------------------------------------------------ the queue

    def _submit(self) -> None:
        script, arguments = self._outcome.copy.script, self._plan.arguments
        self._ids.append(self.queue.submit(self.folder, script, arguments, self._options))

    def _start_again(self) -> None:
        if not self._plan.again:
            self._submit()
            return
        done = self.queue.ask(["bash", "-c", self._plan.again], self.folder)
        if done.code != 0:
            raise RankupError(
                "cannot-start-again",
                f"--again ended with code {done.code}",
                context=f"{self._plan.again}: {(done.err or done.out).strip()[-300:]}",
                hint="it is run in the copy of the job's folder",
                exit_code=1,
            )

    def _look(self) -> list[QueueJob]:
        alive = self.queue.jobs(self.folder, self._ids)
        for job in alive:
            if job.id not in self._ids:
                self._ids.append(job.id)
            self._outcome.nodes |= {*job.nodes}
            said = f"{job.id} {job.state}"
            if said not in self._outcome.states[-len(alive) :]:
                self._outcome.states.append(said)
        return alive

    def _watch(self) -> None:
        """Until no job is left; strikes when it is time."""
        outcome = self._outcome
        gone_since = held_since = None
        waits_for = outcome.failure if outcome.again == 0 else None
        while True:
            jobs, now = self._look(), time.monotonic()
            gone_since = None if jobs else gone_since or now
            held_since = None if any(not job.held for job in jobs) or not jobs else held_since or now
            if (gone_since and now - gone_since > _GONE_S) or (held_since and now - held_since > _HELD_S):
                return
            if len(self._attempts()) > _MOST_ATTEMPTS:
                outcome.endless = True
                for job in jobs:
                    self.queue.cancel(job.id)
                return
            if waits_for is not None and last_step(outcome.copy.attempts) >= outcome.step:
                self._strike(waits_for)
                waits_for = None
            time.sleep(_POLL_S)

    def _strike(self, failure: Failure) -> None:
        self._view.says(f"strikes after step {self._outcome.step}")
        self._outcome.reached = True
        self._outcome.not_tried = failure.strike(self)
        if not failure.stays_slow:
            (self._outcome.copy.attempts / "pace").unlink(missing_ok=True)

    def _attempts(self) -> Sequence[Path]:
        return [path for path in self._outcome.copy.attempts.iterdir() if path.name.isdigit()]

    def _finished(self) -> bool:
        return self._outcome.endless or training(self._outcome.copy.attempts, self._steps).done


def _does_not_train(outcome: Outcome) -> RankupError:
    logs = [path for path in outcome.copy.folder.iterdir() if path.is_file() and path != outcome.copy.script]
    newest = max(logs, key=lambda path: path.stat().st_mtime, default=None)
    lines = plain(newest.read_text(errors="replace")).splitlines()[-5:] if newest is not None else []
    steps = outcome.training.last
    return RankupError(
        "job-fails",
        "the job does not train to its end, without any failure"
        if steps
        else "the job trained no step that could be recorded",
        context="\n".join([*outcome.records, *([f"{newest}:", *lines] if newest is not None else [])]),
        hint="submit it by hand first, and see that it ends well within --limit. A step is one of a torch optimizer, "
        "in a Python that gets the job's PYTHONPATH: containers and --export=NONE keep it out",
        exit_code=1,
    )
