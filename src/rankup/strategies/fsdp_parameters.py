"""The units of an FSDP model, and the parameters of each.

A unit is a module that FSDP gathers by itself: each block, and the root with the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import nn

from rankup.strategies.changes import power_of_two


@dataclass(eq=False)
class Slot:
    """One parameter, and where it lies: whole in its module while it is gathered, this rank's shard otherwise."""

    name: str
    module: nn.Module
    attribute: str
    shard: nn.Parameter | None = None
    whole: nn.Parameter | None = None  # the same object in every gather
    noted: bool = False  # whether ``used`` is seen to
    used: bool = False  # has had a gradient on this rank since the last reduction
    had_gradient: bool = False  # its shard, when this backward began
    begun: tuple[int, int] | None = None  # its content, when this forward began

    @property
    def missing(self) -> bool:
        return self.whole is not None and self.whole.requires_grad and self.whole.grad is None

    def content(self) -> tuple[int, int] | None:
        """Another one if something writes to the whole parameter; None if that cannot be told."""
        if self.whole is None or self.whole.is_inference():
            return None
        return self.whole._version, self.whole.data_ptr()


@dataclass(eq=False)
class Unit:
    name: str
    module: nn.Module
    root: Unit | None  # None: it is the root
    slots: list[Slot] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)  # of a root: all of its model, itself last
    join_unused: bool = False
    reduced: int = -1  # the backward in which it was
    forwards: int = 0
    looks: bool = False  # in this forward

    @property
    def top(self) -> Unit:
        return self.root or self

    def complete(self) -> list[str]:
        """Names of the parameters that this rank leaves out of this unit's reduction; none if all are to join it."""
        missing = [slot for slot in self.slots if slot.missing]
        if not self.join_unused:
            return [slot.name for slot in missing]
        for slot in missing:
            assert slot.whole is not None
            slot.whole.grad = torch.zeros_like(slot.whole)
        return []

    def begin_forward(self) -> None:
        """Its parameters are gathered now. They are looked at in its forwards 1, 2, 4, 8, …"""
        self.forwards += 1
        self.looks = power_of_two(self.forwards)
        for slot in self.slots if self.looks else ():
            slot.begun = slot.content()

    def written(self) -> str:
        """The name of a parameter that this forward has written to; "" if there is none."""
        slots = self.slots if self.looks else ()
        written = (slot.name for slot in slots if slot.begun is not None and slot.content() != slot.begun)
        return next(written, "")


def describe(number: str, model: nn.Module, blocks: list[nn.Module], *, join_unused: bool) -> Unit:
    """The root unit of ``model``, before it is sharded, with all of its units; ``number`` names the model."""
    names = {id(module): name for name, module in model.named_modules()}
    root = Unit(number, model, None, join_unused=join_unused)
    root.units = [Unit(names[id(block)], block, root, join_unused=join_unused) for block in blocks]
    root.units.append(root)
    taken: set[int] = set()
    for unit in root.units:
        for prefix, module in unit.module.named_modules(prefix=names[id(unit.module)]):
            for attribute, parameter in module.named_parameters(recurse=False):
                if id(parameter) not in taken:
                    taken.add(id(parameter))
                    unit.slots.append(Slot(f"{prefix}.{attribute}".lstrip("."), module, attribute))
    return root


def clear(unused: list[Slot]) -> None:
    for slot in unused:
        if slot.shard is not None and not slot.had_gradient:
            slot.shard.grad = None
