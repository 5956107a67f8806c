"""What has a state and is in no snapshot: averages, schedules, second optimizers that nobody gave to ``run.register``,
and generators that the script's variables hold.

``rankup verify`` looks for them in every epoch; an ordinary run looks once, and warns once.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from rankup.runtime.context import RunContext
from rankup.runtime.live_objects import objects_of
from rankup.runtime.tracing.script_variables import name_of, namespaces

_DEPTH = 3
_SMALL = 1024


def find_untracked(
    run: RunContext, spaces: Sequence[Mapping[str, Any]] = (), *, trusting: bool = False
) -> dict[str, Any]:
    """Everything alive with ``state_dict`` and ``load_state_dict`` that the run neither trains nor has registered, by
    its type's name and, if one of the variables in ``spaces`` holds it, that one's: ``{"AveragedModel average": …,
    "StepLR": …, "StepLR-2": …}``. ``trusting``: what a registered thing holds is taken for saved by it; else only of
    torch's own, as the schedules in a SequentialLR."""
    known = [thing for thing in run.registered.values() if trusting or _holds_its_parts(thing)]
    ours = {id(thing) for thing in (*run.optimizers, *run.registered.values())} | _within(known)
    tensors = {id(t) for model in run.models for t in (*model.parameters(), *model.buffers())}
    things, loaders = _alive()
    modules = [thing for thing in things if isinstance(thing, nn.Module)]
    inner = {id(part) for whole in modules for part in whole.modules() if part is not whole}
    outer = [
        thing
        for thing in things
        if id(thing) not in ours
        and not (isinstance(thing, nn.Module) and (id(thing) in inner or tensors & _tensors(thing)))
    ]
    # Of a schedule made of schedules the whole one is named, and not its parts.
    parts = [_within([thing]) - {id(thing)} for thing in outer if _holds_its_parts(thing)]
    wholes = [thing for thing in outer if not any(id(thing) in part for part in parts)]
    return _named([*wholes, *_generators(spaces, loaders)], list(spaces))


def state_of(thing: Any) -> Any:
    """Of anything that ``find_untracked`` has found."""
    if isinstance(thing, torch.Generator):
        return thing.get_state()
    if isinstance(thing, random.Random):
        return thing.getstate()
    if type(thing).__module__.startswith("numpy.random"):
        return repr(thing.get_state() if hasattr(thing, "get_state") else thing.bit_generator.state)
    return thing.state_dict()


def _alive() -> tuple[list[Any], list[Any]]:
    """(everything with a state, every DataLoader)."""
    found = objects_of(lambda kind: _has_state(kind) or kind is DataLoader)
    loaders = [thing for thing in found if isinstance(thing, DataLoader)]
    return [thing for thing in found if _has_state(type(thing))], loaders


def _has_state(kind: type) -> bool:
    """Asked of the type alone: looking at an object's attributes may run its code."""
    if str(kind.__module__).startswith("rankup."):
        return False
    return callable(getattr(kind, "state_dict", None)) and callable(getattr(kind, "load_state_dict", None))


class UntrackedWatch:
    """The one warning of an ordinary run: made as its first loop begins, asked as the first epoch ends. It looks at
    versions of tensors and at plain values, and copies nothing from a device."""

    def __init__(self, run: RunContext) -> None:
        self._things = find_untracked(run, namespaces(), trusting=True)
        self._before = {name: _fingerprint(thing) for name, thing in self._things.items()}

    def warning(self) -> str:
        """What has changed and is not registered, a line for each; "" if nothing has, and when asked again."""
        changed = [name for name, thing in self._things.items() if _fingerprint(thing) != self._before[name]]
        self._things.clear()
        return "\n".join(f"warning: {_sentence(name)}" for name in changed)

    def warn(self) -> None:
        if said := self.warning():
            print(said, file=sys.stderr, flush=True)


def _sentence(name: str) -> str:
    kind, _, variable = name.partition(" ")
    short = (variable or kind.lower()).rpartition(".")[2]
    held = f"{kind} ({variable})" if variable else kind
    return (
        f"{held} has state and is not registered: a resume begins it anew; run.register({short}="
        f"{variable or '…'}) before the loop"
    )


def _fingerprint(thing: Any) -> object:
    """Something that changes if the state does; no collective, and nothing that is read from a device."""
    try:
        if isinstance(thing, nn.Module):
            return [tensor._version for tensor in (*thing.parameters(), *thing.buffers())]
        return repr(_versions(state_of(thing)))
    except (
        Exception
    ):  # not for a resume to fail on: a state that cannot be taken now is none that can be judged
        return None


def _versions(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        small = value.device.type == "cpu" and value.numel() <= _SMALL
        return (value.shape, value._version, value.tolist() if small else None)
    if isinstance(value, Mapping):
        return {key: _versions(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_versions(item) for item in value]
    return value if isinstance(value, (bool, int, float, str, bytes, type(None))) else type(value).__name__


def _holds_its_parts(thing: object) -> bool:
    """Whether its ``state_dict`` is known to have that of all that it holds."""
    return str(type(thing).__module__).startswith(("torch.", "rankup."))


def _named(things: Sequence[Any], spaces: list[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for thing in things:
        variable = name_of(thing, spaces)
        base = f"{type(thing).__name__} {variable}".strip()
        name, number = base, 1
        while name in found:
            number += 1
            name = f"{base}-{number}"
        found[name] = thing
    return found


def _generators(spaces: Sequence[Mapping[str, Any]], loaders: Sequence[Any]) -> list[Any]:
    """Random generators of the script's own: held by a variable, or by an attribute of what one holds. Those of torch,
    Python and NumPy that are global are in every snapshot, and a loader's is its own affair."""
    numpy = sys.modules.get("numpy.random")
    kinds: tuple[type, ...] = (torch.Generator, random.Random)
    if numpy is not None:
        kinds += (numpy.Generator, numpy.RandomState)
    known = {id(torch.default_generator), id(getattr(random.random, "__self__", None))}
    if numpy is not None:
        known.add(id(getattr(numpy.mtrand, "_rand", None)))
    for loader in loaders:
        known |= {id(loader.generator), id(getattr(loader.sampler, "generator", None))}
    found: dict[int, Any] = {}
    for space in spaces:
        for value in list(space.values()):
            held = [value]
            if hasattr(value, "__dict__") and not isinstance(value, type):
                module = str(type(value).__module__)
                if type(value).__name__ != "module" and not module.startswith(("rankup.", "torch.")):
                    held += list(vars(value).values())
            for thing in held:
                if isinstance(thing, kinds) and id(thing) not in known:
                    found.setdefault(id(thing), thing)
    return list(found.values())


def _within(things: Any) -> set[int]:
    """Ids of ``things`` and of what their attributes hold, also in lists and dicts: a SequentialLR's schedules. A
    schedule holds its optimizer, too, and does not save it."""
    found = {id(thing) for thing in things}
    level = list(things)
    for depth in range(_DEPTH):
        following: list[Any] = []
        for thing in level:
            if depth and (id(thing) in found or isinstance(thing, Optimizer)):
                continue
            found.add(id(thing))
            if isinstance(thing, (list, tuple)):
                following += thing
            elif isinstance(thing, dict):
                following += thing.values()
            elif hasattr(thing, "__dict__") and not isinstance(thing, (type, nn.Module)):
                following += vars(thing).values()
        level = following
    return found


def _tensors(module: nn.Module) -> set[int]:
    return {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
