"""Objects with a state that is in no snapshot: averages, schedules, second optimizers that were not registered, and
generators that the script's variables hold.

``rankup verify`` looks for them in every epoch; an ordinary run looks once, and warns once.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from rankup.runtime.checkpointing.attributes import within
from rankup.runtime.checkpointing.carried.forward_state import ForwardState
from rankup.runtime.checkpointing.changed_parameters import ChangedParameters
from rankup.runtime.checkpointing.plain_values import PlainValues
from rankup.runtime.context import RunContext
from rankup.runtime.data.batches import sampled_order
from rankup.runtime.data.own_generators import generator_kinds, global_generators
from rankup.runtime.live_objects import objects_of
from rankup.runtime.tracing.script_variables import inside, name_of, namespaces
from rankup.strategies.inner_optimizers import with_inner

_SMALL = 1024


def find_untracked(
    run: RunContext, spaces: Sequence[Mapping[str, Any]] = (), *, trusting: bool = False
) -> dict[str, Any]:
    """Every live object with ``state_dict`` and ``load_state_dict`` that the run neither trains nor has registered, by
    the name of its type and of the variable in ``spaces`` that holds it, if one does: ``{"AveragedModel average": …,
    "StepLR": …, "StepLR-2": …}``. ``trusting``: assume that a registered object saves what it holds; else that is
    assumed only of torch's own, as of the schedules in a SequentialLR."""
    known = [thing for thing in run.registered.values() if trusting or _holds_its_parts(thing)]
    optimizers = [each for optimizer in run.optimizers for each in with_inner(optimizer)]
    ours = {id(thing) for thing in (*optimizers, *run.registered.values())} | within(known)
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
    # A schedule that consists of schedules is named, and not its parts.
    parts = [within([thing]) - {id(thing)} for thing in outer if _holds_its_parts(thing)]
    wholes = [thing for thing in outer if not any(id(thing) in part for part in parts)]
    return _named([*wholes, *_generators(spaces, loaders, ours)], list(spaces))


def state_of(thing: Any) -> Any:
    """The state of anything that ``find_untracked`` has found."""
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
    """Reads only the type, since reading an object's attributes may run its code."""
    if str(kind.__module__).startswith("rankup."):
        return False
    return callable(getattr(kind, "state_dict", None)) and callable(getattr(kind, "load_state_dict", None))


class UntrackedWatch:
    """The one warning of an ordinary run: made when its first loop begins, read when the first epoch ends. It compares
    versions of tensors and plain values, and copies nothing from a device."""

    def __init__(self, run: RunContext, plain: PlainValues) -> None:
        self._run = run
        self._plain = plain
        self._things = find_untracked(run, namespaces(), trusting=True)
        self._before = {name: _fingerprint(thing) for name, thing in self._things.items()}
        self._forward = ForwardState(run)
        self._parameters = ChangedParameters(run)
        self._ended = False
        self._said: set[str] = set()

    def step_done(self) -> None:
        self._forward.step_done()
        self._plain.first_step_done()

    def epoch_begins(self) -> None:
        for said in {*self._plain.unseen(), *self._plain.rows_lost(self._said)} - self._said:
            self._said.add(said)
            print(f"warning: {said}", file=sys.stderr, flush=True)

    def warn_of_orders(self) -> None:
        """After the last step of an epoch, before the script's code that follows. It warns after the first epoch."""
        self._plain.rows_trained()
        if not self._ended:
            self._plain.epoch_trained()
            moved = [order.moved() for feed in self._run.feeds if (order := sampled_order(feed)) is not None]
            print(
                "".join(f"warning: {said}\n" for said in moved if said), end="", file=sys.stderr, flush=True
            )

    def warning(self) -> str:
        """What has changed and is not registered, one line each; "" if nothing has, and in later calls."""
        if self._ended:
            return ""
        changed = [name for name, thing in self._things.items() if self._changed(name, thing)]
        self._things.clear()
        self._ended = True
        self._forward.close()
        ours = within(self._run.registered.values())
        said = [*map(_sentence, changed), *self._plain.lost(ours), *self._forward.lost(ours)]
        self._said |= {*said}
        return "\n".join(f"warning: {each}" for each in said)

    def _changed(self, name: str, thing: Any) -> bool:
        now, before = _fingerprint(thing), self._before[name]
        # A script that seeds it again, as by the epoch's number, loses nothing.
        return now != before and not (isinstance(thing, torch.Generator) and now[0] != before[0])

    def warn(self) -> None:
        said = [self.warning(), f"warning: {each}" if (each := self._parameters.warning()) else ""]
        print("".join(f"{each}\n" for each in said if each), end="", file=sys.stderr, flush=True)


def _sentence(name: str) -> str:
    kind, _, variable = name.partition(" ")
    short = re.findall(r"[^\W\d]\w*", variable or kind.lower())[-1]  # also of draws["noise"]
    held = f"{kind} ({variable})" if variable else kind
    return (
        f"{held} has a state and is not registered: it is lost at a resume; run.register({short}="
        f"{variable or '…'}) before the loop"
    )


def _fingerprint(thing: Any) -> Any:
    """Something that changes if the state does; no collective, and nothing that is read from a device."""
    try:
        if isinstance(thing, torch.Generator):  # its state is on the CPU, also that of a device's
            return (thing.initial_seed(), thing.get_state().tolist())
        if isinstance(thing, nn.Module):
            return [tensor._version for tensor in (*thing.parameters(), *thing.buffers())]
        return repr(_versions(state_of(thing)))
    except Exception:  # a state that cannot be read cannot be judged, and must not end the run
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
    """Whether its ``state_dict`` is known to include the state of all that it holds."""
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


def _generators(spaces: Sequence[Mapping[str, Any]], loaders: Sequence[Any], ours: set[int]) -> list[Any]:
    """The script's own random generators: held by a variable, or by what one holds (an attribute of an object, an item
    of a list or a dict, a variable of a closure). Not the global ones of torch, Python and NumPy, which are in
    every snapshot, nor those of loaders, nor ``ours``."""
    kinds, known = generator_kinds(), global_generators() | ours
    for loader in loaders:
        known |= {id(loader.generator), id(getattr(loader.sampler, "generator", None))}
    found: dict[int, Any] = {}
    for space in spaces:
        for value in list(space.values()):
            for thing in (value, *inside(value).values()):
                if issubclass(type(thing), kinds) and id(thing) not in known:
                    found.setdefault(id(thing), thing)
    return list(found.values())


def _tensors(module: nn.Module) -> set[int]:
    return {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
