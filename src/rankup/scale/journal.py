"""A study on disk: what was asked for, and which of its runs have begun and ended, so that it can go on.

| file | what |
|---|---|
| ``study.json`` | the plan: the command, the grid, repeats, and the order of the runs |
| ``trials.jsonl`` | a line before a job is submitted, when a run begins, when it has ended; only appended to |
| ``lock`` | who works on the study |
| ``results.json`` | what was measured (``results.py``) |
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rankup.core.files import make_folder, write_atomic
from rankup.core.locks import only_one
from rankup.core.records import RecordWriter, read_records
from rankup.errors import RankupError
from rankup.scale.plan import Point, Trial, Value, points, trials
from rankup.scale.results import VERSION


@dataclass(frozen=True)
class StudyPlan:
    """What a study measures. ``command`` is a workload with its options, or a script with its arguments.

    ``flags`` are those of the job (``JobSpec``), ``training`` those of a workload's training. ``site`` "" runs here;
    ``at_once`` limits the jobs that run together. ``cwd`` is where the command runs. ``load`` is the machine's before
    the study, None if unknown. ``allow_unfair``: refused ratios are printed, marked. ``made``: when, by which command,
    from which commit (``machine.provenance``).
    """

    command: Sequence[str]
    grid: Mapping[str, Sequence[Value]]
    repeats: int = 3
    scaling: str = "strong"
    baseline: str = ""
    metric: str = ""
    seed: int = 0
    site: str = ""
    at_once: int = 4
    flags: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    load: float | None = None
    cwd: str = ""
    allow_unfair: bool = False
    made: Mapping[str, str] = field(default_factory=dict)

    @property
    def points(self) -> list[Point]:
        return points(self.grid)

    @property
    def order(self) -> list[Trial]:
        return trials(self.points, self.repeats, seed=self.seed)

    @property
    def target(self) -> str:
        return " ".join(self.command)


@dataclass(frozen=True)
class TrialState:
    """``run`` is the run directory, "" before it began; ``ended`` is "" while it runs, else done or failed.

    ``submitting`` is the run directory of a submit of which nobody knows yet whether it came to its end.
    """

    run: str = ""
    job: str = ""
    ended: str = ""
    failure: Mapping[str, Any] | None = None
    submitting: str = ""


class Journal:
    """The directory of one study. ``states`` tells how far each of its runs is."""

    def __init__(self, folder: Path, plan: StudyPlan) -> None:
        self.folder = folder
        self.plan = plan
        self._writer = RecordWriter(folder / "trials.jsonl")

    @classmethod
    def create(cls, folder: Path, plan: StudyPlan) -> Journal:
        """A new study in ``folder``, which is made."""
        make_folder(folder, mode=0o700, purpose="study directory")
        text = json.dumps({"version": VERSION, **asdict(plan)}, indent=2, default=str)
        write_atomic(folder / "study.json", text + "\n", mode=0o600)
        return cls(folder, plan)

    @classmethod
    def open(cls, folder: Path) -> Journal:
        """The study that was begun in ``folder``. Raises RankupError if there is none."""
        folder = folder.absolute()
        path = folder / "study.json"
        try:
            given = json.loads(path.read_text(encoding="utf-8"))
            version = given.pop("version")
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise RankupError(
                "no-study",
                f"there is no study in {folder.name}",
                context=f"{path}: {error}",
                hint="the directory of a study has study.json; rankup scale prints it when it begins",
            ) from error
        if version != VERSION:
            raise RankupError(
                "other-version",
                f"the study is of version {version}, and this rankup reads version {VERSION}",
                context=str(path),
                hint="begin the study again",
            )
        try:
            plan = StudyPlan(**given)
            good = plan.command and plan.grid and plan.order
        except (TypeError, ValueError, AttributeError) as error:
            raise _damaged(f"the plan is invalid: {error}", path) from error
        if not good:
            raise _damaged("the plan has no command or no grid", path)
        return cls(folder, plan)

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """While the body runs, no other process works on this study. Raises RankupError if one does."""
        return only_one(
            self.folder / "lock",
            code="in-use",
            busy="another rankup scale works on this study",
            hint="wait for it; its jobs and results are in the study's directory",
        )

    def submitting(self, trial: Trial, run: Path) -> None:
        """Its job is about to be submitted from ``run``; ``began`` follows, unless this process is killed."""
        self._writer.write("submitting", point=trial.asked, repeat=trial.repeat, run=str(run))

    def began(self, trial: Trial, run: Path, job: str = "") -> None:
        self._writer.write("began", point=trial.asked, repeat=trial.repeat, run=str(run), job=job)

    def ended(self, trial: Trial, failure: Mapping[str, Any] | None = None) -> None:
        """It ended well, or with ``failure``, a finding as a dict."""
        self._writer.write("ended", point=trial.asked, repeat=trial.repeat, failure=failure)

    def note(self, kind: str, **fields: Any) -> None:
        """Another line: a prediction, a score."""
        self._writer.write(kind, **fields)

    def notes(self, kind: str) -> list[dict[str, Any]]:
        """What ``note`` has written of this kind."""
        return read_records(self.folder / "trials.jsonl", kind)

    def states(self) -> dict[Trial, TrialState]:
        """Of all trials of the plan, in its order; the newest line of a trial holds."""
        found: dict[Trial, TrialState] = {trial: TrialState() for trial in self.plan.order}
        for record in read_records(self.folder / "trials.jsonl"):
            if record["kind"] not in ("submitting", "began", "ended"):
                continue
            try:
                trial = Trial(tuple(record["point"].items()), record["repeat"])
                if trial not in found:
                    continue
                self._apply(record, trial, found)
            except (KeyError, TypeError, AttributeError) as error:
                why = f"a line of {record['kind']!r} is invalid ({type(error).__name__}: {error})"
                raise _damaged(why, self.folder / "trials.jsonl") from error
        return found

    @staticmethod
    def _apply(record: Mapping[str, Any], trial: Trial, found: dict[Trial, TrialState]) -> None:
        """One line, on the states that the lines before it have left."""
        match record["kind"]:
            case "submitting":
                found[trial] = TrialState(submitting=record["run"])
            case "began":
                found[trial] = TrialState(record["run"], record["job"])
            case _:
                before, failure = found[trial], record["failure"]
                found[trial] = TrialState(before.run, before.job, "failed" if failure else "done", failure)

    def close(self) -> None:
        self._writer.close()


def _damaged(why: str, path: Path) -> RankupError:
    return RankupError(
        "damaged-study",
        why,
        context=str(path),
        hint="was it changed by hand? begin the study again, or `rankup report` its runs",
    )
