"""Which parameters are frozen: a script that unfreezes layers while it trains resumes with these unfrozen.

The first loop notes which parameters are frozen when it begins, and each state which ones are frozen at that time. A
process that resumes must begin with the same ones frozen as the first process; then those of the state are restored.
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

    def begin(self) -> None:
        """A stage of the training begins, or is about to be resumed."""
        self._begun = self._now()

    def state(self) -> dict[str, Any]:
        return {"begun": self._begun, "now": self._now()}

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

    def _now(self) -> Names:
        return [
            [name for name, parameter in parameters.items() if not parameter.requires_grad]
            for parameters in self._parameters()
        ]

    def _parameters(self) -> list[dict[str, nn.Parameter]]:
        """By name; empty in a pipeline, where each rank holds a different stage."""
        whole = self._run.strategy.every_name
        return [dict(model.named_parameters()) if whole else {} for model, _ in self._run.prepared]
