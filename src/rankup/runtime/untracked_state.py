"""What has a state and is in no snapshot: averages, schedules, second optimizers that nobody gave to ``run.register``.

Only ``rankup verify`` looks for them. Nothing tells what of it matters, so none of it is an error by itself: it becomes
a finding where it differs after a resume.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from rankup.runtime.run import Run


def find_untracked(run: Run) -> dict[str, Any]:
    """Everything alive with ``state_dict`` and ``load_state_dict`` that the run neither trains nor keeps, by its type's
    name: ``{"AveragedModel": …, "StepLR": …, "StepLR-2": …}``."""
    ours = {id(thing) for thing in (*run.registered.values(), *run.optimizers)}
    tensors = {id(t) for model in run.models for t in (*model.parameters(), *model.buffers())}
    things = [thing for thing in gc.get_objects() if _has_state(type(thing)) and id(thing) not in ours]
    modules = [thing for thing in things if isinstance(thing, nn.Module)]
    kept = [thing for thing in run.registered.values() if isinstance(thing, nn.Module)]
    inner = {id(part) for whole in (*modules, *kept) for part in whole.modules() if part is not whole}
    found: dict[str, Any] = {}
    for thing in things:
        if isinstance(thing, nn.Module) and (id(thing) in inner or not tensors.isdisjoint(_tensors(thing))):
            continue
        name, number = type(thing).__name__, 1
        while name in found:
            number += 1
            name = f"{type(thing).__name__}-{number}"
        found[name] = thing
    return found


def _has_state(kind: type) -> bool:
    """Asked of the type alone: looking at an object's attributes may run its code."""
    if str(kind.__module__).startswith("rankup."):
        return False
    return callable(getattr(kind, "state_dict", None)) and callable(getattr(kind, "load_state_dict", None))


def _tensors(module: nn.Module) -> set[int]:
    return {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
