"""Numbers that models and optimizers keep in plain attributes: a temperature that ``forward`` lowers, a count of steps.

No ``state_dict`` has them, so they start again at a resume.
"""

from __future__ import annotations

from torch.optim import Optimizer

from rankup.runtime.context import RunContext
from rankup.strategies.inner_optimizers import with_inner

Numbers = dict[tuple[int, str], float]  # (id of the object, attribute) → value


def plain_numbers(run: RunContext) -> Numbers:
    """What they are now."""
    return {
        (id(thing), name): value
        for thing in _things(run)
        for name, value in vars(thing).items()
        if _counts(name, value)
    }


def moved_numbers(run: RunContext, before: Numbers) -> list[str]:
    """What to say of each that has changed since, once per class and attribute."""
    said: dict[str, str] = {}
    for thing in _things(run):
        for name, value in vars(thing).items():
            if _counts(name, value) and before.get((id(thing), name), value) != value:
                place = f"{name} of {type(thing).__name__}"
                how = (
                    f'a parameter group holds it: self.param_groups[0]["{name}"]'
                    if isinstance(thing, Optimizer)
                    else f'a buffer is saved: self.register_buffer("{name}", torch.tensor(…))'
                )
                said[place] = (
                    f"{place} changes in training and is a plain attribute, which no snapshot holds: after a resume it "
                    f"starts again, unless the script sets it in each step or before each epoch; {how}"
                )
    return list(said.values())


def _things(run: RunContext) -> list[object]:
    modules: list[object] = [module for model in run.models for module in model.modules()]
    return modules + [each for optimizer in run.optimizers for each in with_inner(optimizer)]


def _counts(name: str, value: object) -> bool:
    """Flags are no counters, and a mode is in the snapshot (``frozen.py``)."""
    return type(value) in (int, float) and name not in _TORCH


_TORCH = frozenset({"_step_count", "_opt_called"})
