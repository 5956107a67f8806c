"""Which parameters are frozen, and which modules are in evaluation mode.

A script that unfreezes layers while it trains resumes with these unfrozen; one that calls ``eval()`` of its BatchNorm
layers after the first epoch resumes with these in that mode.

The first loop notes both when it begins, and each state what they are at that time. A process that resumes must begin
with the same parameters frozen as the first process; then those of the state are restored. Modes are restored if the
process begins with the same ones; else the script was edited, and its own hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from rankup.errors import RankupError
from rankup.runtime.context import RunContext

Names = list[list[str]]  # of each prepared model


class Frozen:
    """Of one run."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._begun: Names | None = None
        self._begun_evaluating: Names | None = None

    def begin(self) -> None:
        """A stage of the training begins, or is about to be resumed."""
        self._begun = self._now()
        self._begun_evaluating = self._evaluating()

    def state(self) -> dict[str, Any]:
        return {
            "begun": self._begun,
            "now": self._now(),
            "begun_evaluating": self._begun_evaluating,
            "evaluating": self._evaluating(),
        }

    def check(self, saved: Mapping[str, Any]) -> None:
        """RankupError ``other-frozen`` if other parameters were frozen when the training began than in this process."""
        begun = self._begun or self._now()
        if saved["begun"] is None or saved["begun"] == begun:
            return
        for index, (theirs, mine) in enumerate(zip(saved["begun"], begun, strict=False)):
            for name in sorted({*theirs} ^ {*mine}):
                was, now = ("frozen", "trained") if name in theirs else ("trained", "frozen")
                raise RankupError(
                    "other-frozen",
                    f"{name} of model {index + 1} was {was} when the training began, and is {now} in this process",
                    hint="freeze the same layers before the loop; or begin a new run, with another directory",
                )

    def load(self, saved: Mapping[str, Any]) -> None:
        for names, parameters in zip(saved["now"], self._parameters(), strict=True):
            for name, parameter in parameters.items():
                if parameter.requires_grad == (name in names):
                    parameter.requires_grad_(name not in names)
        if saved["begun_evaluating"] not in (None, self._begun_evaluating):
            return
        for names, modules in zip(saved["evaluating"], self._modules(), strict=True):
            evaluating = set(names)
            for name, module in modules.items():
                module.training = name not in evaluating

    def _now(self) -> Names:
        return [
            [name for name, parameter in parameters.items() if not parameter.requires_grad]
            for parameters in self._parameters()
        ]

    def _evaluating(self) -> Names:
        return [
            [name for name, module in modules.items() if not module.training] for modules in self._modules()
        ]

    def _modules(self) -> list[dict[str, nn.Module]]:
        """By name; empty in a pipeline, as parameters are."""
        whole = self._run.strategy.every_name
        return [dict(model.named_modules()) if whole else {} for model, _ in self._run.prepared]

    def _parameters(self) -> list[dict[str, nn.Parameter]]:
        """By name; empty in a pipeline, where each rank holds a different stage."""
        whole = self._run.strategy.every_name
        return [dict(model.named_parameters()) if whole else {} for model, _ in self._run.prepared]
