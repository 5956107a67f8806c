"""What tells that a model may have changed since it was last walked, without a walk: torch counts its hooks, and tells
when a parameter or a layer is put into a module. Nothing tells of a ``requires_grad`` that is set: it is read."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from torch import nn
from torch.nn.modules import module as modules
from torch.utils.hooks import RemovableHandle

#: ``bytes(map(requires_grad, parameters))`` reads all of them in one pass in C.
requires_grad = attrgetter("requires_grad")

# Parameters and layers that were put into any module of the process, since the first model was wrapped.
_registered = [0]


def count_registered() -> None:
    """From now on ``registered`` counts. Calling it again has no effect."""
    if _count not in modules._global_module_registration_hooks.values():
        modules.register_module_module_registration_hook(_count)
        modules.register_module_parameter_registration_hook(_count)


def registered() -> int:
    """Another number after a parameter or a layer was put into a module."""
    return _registered[0]


def hooked() -> tuple[int, int]:
    """Other numbers after a hook was put on anything, or a parameter into a module."""
    return RemovableHandle.next_id, _registered[0]


def power_of_two(number: int) -> bool:
    """For what is looked at in steps 1, 2, 4, 8, …"""
    return number & (number - 1) == 0


def _count(module: nn.Module, name: str, value: Any) -> None:
    _registered[0] += 1
