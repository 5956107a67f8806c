"""What contributes to the state of a run, besides its context, and is there before its first step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch.nn.parameter import is_lazy

from rankup.runtime.checkpointing.model_form import Frozen, ModelForms
from rankup.runtime.checkpointing.settings import ResumeSettings
from rankup.runtime.context import RunContext
from rankup.runtime.digest import fingerprint

if TYPE_CHECKING:
    from rankup.runtime.unregistered.watch import UnregisteredWatch

_SOME = 8  # values of each parameter


@dataclass
class StateParts:
    """``watch``: on rank 0, of a run that saves."""

    frozen: Frozen
    forms: ModelForms
    settings: ResumeSettings
    watch: UnregisteredWatch | None = None
    loop: dict[str, Any] = field(default_factory=dict)  # which loop the state is of
    begun: str = ""  # a digest of some of the weights that the script began with
    _noted: int = 0  # models

    def note_begin(self, run: RunContext) -> None:
        """Note what the script begins with, once for each stage, which has more prepared models than the one before.
        Called before anything is restored: by a loop, or by ``run.state`` before it."""
        if len(run.prepared) > self._noted:
            self._noted = len(run.prepared)
            self.begun = self.begun or _some_weights(run)
            self.frozen.begin()


def _some_weights(run: RunContext) -> str:
    """Of each parameter that this rank holds as a whole."""
    held = [
        each
        for model in run.models
        for each in model.parameters()
        if not (hasattr(each, "to_local") or is_lazy(each) or each.is_meta)
    ]
    return fingerprint([each.detach().reshape(-1)[:_SOME].clone() for each in held])
