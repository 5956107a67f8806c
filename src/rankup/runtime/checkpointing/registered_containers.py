"""Registered lists, dicts, sets and deques, tensors, arrays and generators: each is restored in place. What a
container holds is restored in place as far as it has held it since its loop began (``identities.py``).
"""

from __future__ import annotations

import copy
import itertools
from collections import deque
from typing import Any

import torch

from rankup.errors import RankupError
from rankup.runtime.checkpointing.adapters import Adapter, other
from rankup.runtime.checkpointing.identities import Held, Identities
from rankup.runtime.checkpointing.packing import (
    as_torch,
    content,
    is_array,
    is_plain_tensor,
    packed,
    packed_items,
    unpacked,
    unpacked_items,
    unsaveable,
)
from rankup.runtime.checkpointing.unsaved import Unsaved
from rankup.runtime.pytree import map_tensors, tensors_in
from rankup.runtime.seed import generator_access
from rankup.runtime.unregistered.walk import Walk, attributes_of, has_own_attributes


def adapter_of(name: str, value: Any, device: torch.device, held: Held) -> Adapter | None:
    """Of a tensor, an array, a generator of random numbers, or a container of plain values and tensors; else None."""

    def check(saved: Any) -> None:
        if saved.shape != value.shape or saved.dtype != value.dtype:
            now = f"{value.dtype} {tuple(value.shape)}"
            raise other(name, f"{saved.dtype} {tuple(saved.shape)}; this run has {now}")

    def fill_tensor(saved: torch.Tensor) -> None:
        check(saved)
        with torch.no_grad():
            value.copy_(saved)

    def fill_array(saved: torch.Tensor) -> None:
        check(loaded := saved.numpy())
        value[...] = loaded

    if isinstance(value, torch.Tensor):
        plain = value.layout == torch.strided and not (
            value.is_quantized or value.is_meta or hasattr(value, "to_local")
        )
        plain = plain and is_plain_tensor(value)
        return Adapter("tensor", name, value, value.detach, fill_tensor) if plain else None
    if is_array(value):
        plain = value.flags.writeable and as_torch(value[:0] if value.ndim else value) is not None
        return Adapter("array", name, value, lambda: as_torch(value), fill_array) if plain else None
    if (access := generator_access(value)) is not None:
        get, set_ = access
        return Adapter("generator", name, value, lambda: packed(get()), lambda saved: set_(unpacked(saved)))
    if isinstance(value, (list, dict, set, deque)) and unsaveable(content(value), name) is None:
        return ContainerAdapter(name, value, device, held)
    return None


class ContainerAdapter(Adapter):
    """A list, dict, set or deque. Tensors in it that were on an accelerator are restored to this rank's device."""

    def __init__(self, name: str, thing: Any, device: torch.device, held: Held) -> None:
        super().__init__("items", name, thing, self._items, self._fill)
        self._device = device
        self._held = held
        self._unsaved = Unsaved(name)  # attributes beside its items

    def loop_begins(self) -> None:
        self._held.note(self.thing, (self._name,))
        self._unsaved.begin(self._attributes())

    def kept(self) -> set[int]:
        return self._held.kept(self._name, self.thing) - {id(self.thing)}

    def state_dict(self, identities: Identities | None = None) -> dict[str, Any]:
        """``identities``: of the object that holds it; None if it is registered itself."""
        identities = identities or Identities(self._name, self._held, per_rank=self.per_rank)
        items = packed_items(self._items(), identities.note)
        identities.note(self.thing)
        places = enumerate(tensors_in(items))
        on_device = [at for at, one in places if one.device.type != "cpu"]
        return {self.kind: items, "on_device": on_device, **identities.part()}

    def load_state_dict(self, state_dict: dict[str, Any], identities: Identities | None = None) -> None:
        elsewhere, count = set(state_dict.get("on_device", ())), itertools.count()

        def placed(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(self._device) if next(count) in elsewhere else tensor

        self._identities = identities or Identities(self._name, self._held, per_rank=self.per_rank)
        self._identities.read(state_dict)
        super().load_state_dict(map_tensors(placed, copy.deepcopy(state_dict)))

    def _attributes(self) -> Walk:
        own = attributes_of(self.thing) if has_own_attributes(self.thing) else []
        return Walk(()).look({f"{self._name}.{name}": value for name, value in own})

    def _items(self) -> Any:
        self._unsaved.check(self._attributes(), (), self._held.forgotten)
        items = content(self.thing)
        if (place := unsaveable(items, self._name)) is not None:
            raise RankupError(
                "unsaveable-state",
                f"{place}, which a snapshot cannot contain",
                hint="numbers, strings, tensors, arrays, and lists, dicts, tuples and sets of them",
                exit_code=1,
            )
        return items

    def _fill(self, saved: Any) -> None:
        thing = self.thing
        if not isinstance(saved, dict if isinstance(thing, dict) else list):
            raise other(self._name, f"not a {type(thing).__name__}")
        loaded = unpacked_items(saved, self._identities.place)
        self._identities.use(thing)
        thing.clear()
        if isinstance(thing, (dict, set)):
            thing.update(loaded)
        else:
            thing.extend(loaded)
