"""What has no ``state_dict`` of its own: an adapter gets and sets its state (``registered_containers``,
``registered_objects``)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

from rankup.errors import RankupError


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


def has_state(thing: Any) -> bool:
    """Whether it has the protocol of ``Stateful``."""
    try:
        return hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")
    except Exception:  # with __getattr__ = dict.__getitem__ it is a KeyError
        return False


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
