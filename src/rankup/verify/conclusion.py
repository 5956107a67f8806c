"""The answer of a proof: its scenarios, one last word, and three parts: the position, the state and the result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rankup.errors import RankupError
from rankup.findings.finding import Finding, in_order
from rankup.verify.scenario import Scenario
from rankup.verify.script_causes import ROUNDING

NOT_JUDGED = "not judged"
HALF_WRITTEN = "save-not-atomic"
NOT_JUDGED_ROUNDING = "rounding-not-judged"  # the code of a finding
# Codes of findings: a resume that does not find its place, and an end that is another one after equal steps.
_OF_POSITION = (
    HALF_WRITTEN,
    "no-checkpoint",
    "begins-again",
    "resume-fails",
    "data-not-restored",
    "other-order",
    "other-inputs",
)
_OF_RESULT = ("other-files", "other-output", "other-end-state", "other-end")
_TOLD = (HALF_WRITTEN, ROUNDING)  # after these the other parts are judged all the same
_SCRIPT_STATE = (
    "weights, optimizer, learning rates, options, loss scale, batches, generators, losses, gradients, buffers"
)
_STATE = "models, optimizers, registered state, batches, losses, generators"
_RESULT = "the end of the training, the files, the last printed numbers"


@dataclass(frozen=True)
class Position:
    """Where one interruption was, and where the next attempt went on: ``resumed_at`` None if it is not known. ``text``:
    all of this in words. ``samples``: which ones were trained twice or never."""

    interruption: str
    killed_at: int
    resumed_at: int | None
    text: str
    samples: str = ""

    @property
    def again(self) -> int | None:
        """Steps that were trained again."""
        return None if self.resumed_at is None else max(0, self.killed_at - self.resumed_at)

    @property
    def line(self) -> str:
        return "; ".join(filter(None, (self.text, self.samples)))


@dataclass(frozen=True)
class Part:
    """``name``: position, state or result."""

    name: str
    verdict: str
    text: str


@dataclass(frozen=True)
class Proof:
    """All scenarios, and what their interruptions crossed and did not cross (texts of ``crossings``). ``lost``: what
    attempts printed about state that was lost. ``notes``: what only a longer training would show, what is not compared,
    and the files that the script writes. ``stopped``: by what a signal from outside ended it."""

    scenarios: tuple[Scenario, ...]
    crossed: tuple[str, ...] = ()
    not_crossed: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    epoch_steps: int | None = None  # of a quick proof
    last_step: int | None = None  # to which any script was shortened
    positions: tuple[Position, ...] = ()
    any_script: bool = False
    stopped: RankupError | None = None

    @property
    def same(self) -> bool:
        """Whether no difference was found."""
        return all(scenario.same for scenario in self.scenarios)

    @property
    def findings(self) -> list[Finding]:
        """The findings of all scenarios, most severe first. The place of each begins with its scenario."""
        return in_order(
            replace(s.finding, place=", ".join(filter(None, (s.what, s.finding.place))))
            for s in self.scenarios
            if s.finding is not None
        )

    @property
    def proved(self) -> bool:
        return self.same and not self.not_crossed and not self.lost and not self.unjudged_worlds

    @property
    def unjudged_worlds(self) -> tuple[Scenario, ...]:
        """Those whose weights differ on other numbers of processes, which may be rounding."""
        return tuple(s for s in self.scenarios if s.finding and s.finding.code == NOT_JUDGED_ROUNDING)

    @property
    def conclusion(self) -> str:
        """One of seven. A training that differs from its own repetition may resume well: nobody can tell."""
        if not self.scenarios[0].same:
            return "not deterministic"
        if self.scenarios[-1].verdict == NOT_JUDGED:
            return NOT_JUDGED
        if (
            self.scenarios[-1].finding is not None
            and self.scenarios[-1].finding.code == ROUNDING
            and self.same
        ):
            return "equal within rounding"
        if not self.same:
            return "differs"
        if self.unjudged_worlds and not self.not_crossed and not self.lost:
            return "proved on the same number of processes alone"
        return "proved" if self.proved else "not proved"

    @property
    def parts(self) -> tuple[Part, ...]:
        """Position, state, result. After the first part that differs the next ones cannot be judged."""
        found: list[Part] = []
        told = self.scenarios[0].same and len(self.scenarios) > 1
        for name in ("position", "state", "result"):
            finding = next((each for each in self.findings if told and _part(each.code) == name), None)
            verdict = "found each time" if name == "position" else "the same"
            text = self._compared(name)
            if finding is not None:
                verdict = "equal within rounding" if finding.code == ROUNDING else "differs"
                verdict = NOT_JUDGED if finding.code in ("no-checkpoint", "begins-again") else verdict
                text = f"{finding.message} [{finding.code}]"
            elif not told:
                verdict, text = NOT_JUDGED, ""
            found.append(Part(name, verdict, text))
            told = told and (finding is None or finding.code in _TOLD)
        return tuple(found)

    def _compared(self, part: str) -> str:
        if part == "position":
            again = [position.again for position in self.positions if position.again is not None]
            counts = " to ".join(map(str, sorted({min(again), max(again)}))) if again else ""
            return f"{counts} step{'s' * (counts != '1')} trained again" if again else ""
        if part == "result":
            return _RESULT
        steps = sum(scenario.steps_compared for scenario in self.scenarios[1:])
        return f"in {steps} steps: {_SCRIPT_STATE if self.any_script else _STATE}"


def as_dict(proof: Proof) -> dict[str, Any]:
    """The three parts, for ``--json``."""
    found: dict[str, Any] = {part.name: {"verdict": part.verdict, "text": part.text} for part in proof.parts}
    found["position"]["interruptions"] = [{**vars(each), "again": each.again} for each in proof.positions]
    return found


def _part(code: str) -> str:
    return "position" if code in _OF_POSITION else "result" if code in _OF_RESULT else "state"
