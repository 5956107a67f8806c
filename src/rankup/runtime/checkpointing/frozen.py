"""Which parameters are frozen, and which modules are in evaluation mode.

A script that unfreezes layers while it trains resumes with these unfrozen; one that calls ``eval()`` of its BatchNorm
layers after the first epoch resumes with these in that mode. Each state has both as they are, and as they were when the
training began. A process that resumes must begin with the same parameters frozen. Modes are restored if it begins with
the same ones; else the script was edited, and its own hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankup.errors import RankupError
from rankup.runtime.context import RunContext

_Names = dict[str, list[str]]  # {"frozen": parameters, "evaluating": modules}, of one model


class Frozen:
    """Of one run."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._begun: list[_Names] = []

    def begin(self) -> None:
        """A stage of the training begins, or is about to be resumed."""
        self._begun = self._now()

    def state(self) -> dict[str, Any]:
        return {"begun": self._begun or self._now(), "now": self._now()}

    def check(self, saved: Mapping[str, Any]) -> None:
        """RankupError ``other-frozen`` if other parameters were frozen when the training began than in this process."""
        for index, (theirs, mine) in enumerate(zip(saved["begun"], self._begun, strict=False)):
            for name in sorted({*theirs["frozen"]} ^ {*mine["frozen"]}):
                was, now = ("frozen", "trained") if name in theirs["frozen"] else ("trained", "frozen")
                raise RankupError(
                    "other-frozen",
                    f"{name} of model {index + 1} was {was} when the training began, and is {now} in this process",
                    hint="freeze the same layers before the loop; or begin a new run, with another directory",
                )

    def load(self, saved: Mapping[str, Any]) -> None:
        every = zip(self._run.prepared, saved["now"], saved["begun"], self._begun, strict=False)
        for (model, _), now, theirs, mine in every:
            frozen, evaluating = {*now["frozen"]}, {*now["evaluating"]}
            for name, parameter in model.named_parameters():
                if parameter.requires_grad == (name in frozen):
                    parameter.requires_grad_(name not in frozen)
            for name, module in model.named_modules() if theirs["evaluating"] == mine["evaluating"] else ():
                module.training = name not in evaluating

    def _now(self) -> list[_Names]:
        """Of each prepared model; of none in a pipeline, where each rank holds a different stage."""
        if not self._run.strategy.every_name:
            return []
        return [
            {
                "frozen": [name for name, each in model.named_parameters() if not each.requires_grad],
                "evaluating": [name for name, module in model.named_modules() if not module.training],
            }
            for model, _ in self._run.prepared
        ]
