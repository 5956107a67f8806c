"""One scenario of the proof: what it is asked to do, what it works with, and the row that it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rankup.errors import RankupError
from rankup.findings.finding import Finding
from rankup.verify.attempts import AttemptEnd, AttemptFailed, Attempts, AttemptSpec
from rankup.verify.diagnosis import of_end
from rankup.verify.files import ASIDE_NOTE, Digests, ScriptFiles, clocklike, short, too_large, whole_files
from rankup.verify.first_difference import Difference, compared, first_difference, other_end
from rankup.verify.plan import KINDS, QUICK_KINDS
from rankup.verify.trace_reader import AttemptTrace
from rankup.verify.values import Distance

QUICK_EPOCHS = 2
# How many attempts may follow one that was stopped from outside.
FURTHER_ATTEMPTS = 3


@dataclass(frozen=True)
class VerifyPlan:
    """``steps`` None: to the training's end. ``kills`` None: one of each possible kind. ``worlds``: the numbers of
    processes, one after another; empty: leave this scenario out. ``seed`` chooses where to interrupt. ``epoch_steps``:
    a quick proof, of two epochs of so many steps, with few kinds of kill. ``budget``: the most seconds that two starts
    may take. ``shorten``: of any script, as many ``steps`` as hold two of its saves."""

    processes: int
    kills: int | None = None
    worlds: tuple[int, ...] = ()
    steps: int | None = None
    seed: int = 0
    epoch_steps: int | None = None
    budget: float | None = None
    shorten: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        kinds = KINDS if self.epoch_steps is None else QUICK_KINDS
        return kinds if self.steps is None else tuple(kind for kind in kinds if kind != "exit")

    @property
    def env(self) -> dict[str, str]:
        """What shortens the training (``runtime/data/batches.py``)."""
        if self.epoch_steps is None:
            return {}
        return {"RANKUP_EPOCH_STEPS": str(self.epoch_steps), "RANKUP_EPOCHS": str(QUICK_EPOCHS)}


@dataclass(frozen=True)
class Scenario:
    """One row: what was done, and the result of the comparison with the uninterrupted training."""

    what: str
    processes: str
    attempts: int
    kills: int
    steps_compared: int
    verdict: str
    same: bool  # no difference was found
    finding: Finding | None = None
    distance: Distance | None = None
    not_compared: tuple[str, ...] = ()  # state that differs without an interruption, such as a clock
    tried: tuple[str, ...] = ()  # the interruptions, as text

    @classmethod
    def judged(
        cls,
        what: str,
        plan: VerifyPlan,
        attempts: int,
        steps: int,
        finding: Finding | None,
        tried: Sequence[str] = (),
    ) -> Scenario:
        """Identical without a ``finding``; ``tried``: the kills."""
        same = finding is None
        verdict = "identical" if same else "differs"
        processes, kills = str(plan.processes), tuple(tried)
        return cls(what, processes, attempts, len(kills), steps, verdict, same, finding, tried=kills)


@dataclass(frozen=True)
class Trial:
    """What all scenarios of a proof work with. ``files``: what the script writes, put back after each training.
    ``python``: an interpreter that has torch."""

    attempts: Attempts
    plan: VerifyPlan
    files: ScriptFiles
    python: str

    def ask(self, what: str, snapshots: str, **more: Any) -> AttemptSpec:
        """An attempt of the proof's own length, on its own number of processes. ``snapshots``: the folder's name."""
        return AttemptSpec(
            what, self.plan.processes, self.attempts.folder / snapshots, self.plan.steps, **more
        )

    def run_twice(self, ask: AttemptSpec) -> AttemptEnd:
        """An attempt, and once more if it fails: a killed process may not have returned its memory or its port yet."""
        try:
            return self.attempts.run(ask)
        except AttemptFailed:
            return self.attempts.run(ask)

    def to_the_end(self, ask: AttemptSpec) -> list[AttemptTrace]:
        """One attempt, or several if they are stopped from outside."""
        made: list[AttemptTrace] = []
        for _ in range(1 + FURTHER_ATTEMPTS):
            end = self.run_twice(ask)
            assert end.attempt is not None  # it was not killed
            made.append(end.attempt)
            if not end.stopped:
                return made
        raise _not_ended(f"{len(made)} attempts to train to the end were stopped ({end.stopped})")

    def uninterrupted(self, what: str, **more: Any) -> AttemptTrace:
        folder = f"snapshots-of-{what.replace(', ', '-').replace(' ', '-')}"
        ended = self.attempts.run(self.ask(what, folder, **more))
        if ended.stopped:
            raise _not_ended(f"the uninterrupted training was stopped ({ended.stopped})")
        assert ended.attempt is not None  # only a killed attempt may have no trace
        return ended.attempt


@dataclass(frozen=True)
class Reference:
    """Two uninterrupted trainings, what each left in the files that it wrote, and the state that is not compared."""

    first: AttemptTrace
    again: AttemptTrace
    files: tuple[Digests, Digests]
    ignore: frozenset[str]

    def repeated(
        self, plan: VerifyPlan, judge: Callable[[AttemptTrace, AttemptTrace, Difference], Finding]
    ) -> Scenario:
        """Are both the same? ``judge`` says why not."""
        first, again = self.first, self.again
        difference = first_difference(first, [again], ignore=self.ignore)
        finding = judge(first, again, difference) if difference is not None else None
        if finding is None and other_end(first, [again]) is not None:
            finding = of_end(first, again, repeated=True)
        return Scenario.judged("uninterrupted, twice", plan, 2, compared(first, [again]), finding)

    def file_notes(self, aside: list[str]) -> list[str]:
        """``aside``: files of a resumed training that differ in what does not count."""
        notes = (
            (
                "files that the script writes, compared and put back as they were: ",
                whole_files(self.files[0]),
            ),
            ("too large to be compared: ", too_large(self.files[0])),
            (
                "not compared, because two uninterrupted runs write them differently: ",
                clocklike(*self.files),
            ),
            (ASIDE_NOTE, aside),
        )
        return [said + short(paths) for said, paths in notes if paths]


def _not_ended(message: str) -> RankupError:
    return RankupError(
        "not-ended",
        message,
        hint="a training that does not reach its end proves nothing: run verify where nothing stops it",
        exit_code=1,
    )
