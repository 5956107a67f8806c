"""Parameters that a model gets, or loses, while it is trained: by a module that the first forward makes, by pruning, by
a parametrization. A resume begins with the model as the script makes it, and cannot load what has other names.
"""

from __future__ import annotations

from rankup.runtime.checkpointing.carried.messages import listed
from rankup.runtime.context import RunContext

_NAMED = 2  # of each kind


class ChangedParameters:
    """Of one stage: the names of the parameters of its models as its loop begins."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._begun = self._names()

    def warning(self) -> str:
        """What to say if they are others now; "" if not, and in later calls."""
        begun, self._begun = self._begun, self._names()
        for (model, before), (_, now) in zip(begun, self._begun, strict=False):
            if before == now:
                continue
            found = [
                f"{listed(each[:_NAMED])}{' and others' if each[_NAMED:] else ''} {how}"
                for each, how in ((sorted(now - before), "came"), (sorted(before - now), "went"))
                if each
            ]
            return (
                f"the parameters of {model} have changed in training ({', '.join(found)}): a resume begins with the "
                "model as the script makes it, and cannot load this one. Give it these before the loop: in __init__, "
                "by a first forward, by torch.nn.utils.prune.identity(module, name)"
            )
        return ""

    def _names(self) -> list[tuple[str, set[str]]]:
        return [
            (type(model).__name__, {name for name, _ in model.named_parameters()})
            for model, _ in self._run.prepared
        ]
