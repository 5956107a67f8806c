"""Things that have no ``state_dict`` of their own: an adapter for each kind gets and sets their state."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import torch

from rankup.errors import RankupError
from rankup.runtime.seed import generator_access

if TYPE_CHECKING:
    from rankup.runtime.checkpointing.containers import Held


class Stateful(Protocol):
    """Anything that can be registered: schedules, averages, counters. Its state is the same on all ranks, unless
    ``per_rank`` is True, and the same in every repetition of a training, unless ``timed`` is True.

    ``per_rank`` things may have ``load_rank_states(states)``: it is called instead of ``load_state_dict`` if another
    number of ranks saved them. Each old rank's state is given to one rank; some ranks get an empty list. Without this
    method a thing starts without a saved state."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


class Adapter:
    """Gives a thing of another kind the protocol of ``Stateful``, by a function that gets its state and one that sets
    it. ``kind`` is the key of the state."""

    per_rank = False

    def __init__(
        self, kind: str, name: str, thing: Any, get: Callable[[], Any], set_: Callable[[Any], Any]
    ) -> None:
        self.kind = kind
        self.thing = thing  # what is registered
        self._name = name
        self._get, self._set = get, set_

    def state_dict(self) -> dict[str, Any]:
        return {self.kind: self._get()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self.kind not in state_dict:
            raise other(self._name, f"{'/'.join(map(str, state_dict))}, not {self.kind}")
        self._set(state_dict[self.kind])

    def loop_begins(self) -> None:
        """Called before its state is taken for the first time."""

    def kept(self) -> set[int]:
        """Ids of what it has held since the loop began, which the script may know by other names."""
        return set()

    def parts(self, state: dict[str, Any]) -> dict[str, Any]:
        """A state by what it holds; by ``""`` if that is one thing."""
        return {"": state}

    @property
    def whole(self) -> bool:
        """Whether it is the same on all ranks, to the last bit."""
        return self.kind in ("tensor", "array", "generator")


def adapter_of(name: str, value: Any, device: torch.device, held: Held | None = None) -> Adapter | None:
    """Of a tensor, an array, a generator of random numbers, or a container of plain values and tensors; else None.
    ``held``: of what holds a container."""
    from rankup.runtime.checkpointing.packing import as_torch, content, is_array, packed, unpacked, unsaveable

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
        return Adapter("tensor", name, value, value.detach, fill_tensor) if plain else None
    if is_array(value):
        plain = value.flags.writeable and as_torch(value[:0] if value.ndim else value) is not None
        return Adapter("array", name, value, lambda: as_torch(value), fill_array) if plain else None
    if (access := generator_access(value)) is not None:
        get, set_ = access
        return Adapter("generator", name, value, lambda: packed(get()), lambda saved: set_(unpacked(saved)))
    if isinstance(value, (list, dict, set, deque)) and unsaveable(content(value), name) is None:
        from rankup.runtime.checkpointing.containers import ContainerAdapter

        return ContainerAdapter(name, value, device, held)
    return None


def other(name: str, what: str) -> RankupError:
    return RankupError(
        "other-registered",
        f"run.register({name}=…): the state has another kind of object with this name ({what})",
        hint="register the same things under the same names as the run that saved it",
    )


def article(thing: Any) -> str:
    name = f"{type(thing).__module__}.{type(thing).__qualname__}".removeprefix("builtins.")
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def refused(name: str, thing: Any, wanted: str) -> RankupError:
    what = thing.__name__ if isinstance(thing, type) or thing is random else article(thing)
    return RankupError("not-stateful", f"run.register({name}=…) got {what}; it takes {wanted}")
