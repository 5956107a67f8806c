"""The small values on the host that ranks exchange, also if the model is on GPUs: no GPU stream waits for them.

Ranks may be in different exchanges: one calls ``run.sum`` under ``if run.world.is_main:``, the others are at the end of
an epoch. Their numbers would be added up. So each value has a tag that says what the exchange is for: if the tags
differ, all of these ranks get an error, and none gets a sum.
"""

from __future__ import annotations

import contextlib
import hashlib
import operator
import pickle
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Generic, TypeVar

from rankup.errors import RankupError
from rankup.messages import tree
from rankup.runtime.call_site import call_site
from rankup.runtime.distributed.waiting import Waiting, by_place
from rankup.world import World

T = TypeVar("T")
Tagged = tuple[str | None, T]  # None: the tags differ


class Control:
    """What the ranks tell each other. Its methods are collectives: all ranks call them in the same order."""

    def __init__(self, world: World, timeout: timedelta, waiting: Waiting) -> None:
        self.world_size = world.world_size
        self.timeout = timeout
        self.waiting = waiting
        self.rank = world.rank
        self._tree = tree.Tree(range(world.world_size), world.rank, "control", timeout)
        self._latest: Exchange[Any] | None = None

    def add(self, what: str, *numbers: float, by_line: bool = False) -> list[float]:
        """The sums over ranks of some numbers. ``what`` is for messages, and must be the same on all ranks, as must the
        line of the script be with ``by_line``.

        Raises RankupError if ranks are in different exchanges, if one has left, and after the timeout.
        """
        return self.begin(what, *numbers, by_line=by_line).wait()

    def begin(self, what: str, *numbers: float, by_line: bool = False) -> Exchange[list[float]]:
        """``add`` whose sums are there after ``wait()``."""
        return self._begin(what, list(numbers), _sums, by_line)

    def any(self, what: str, holds: bool) -> bool:
        """Whether ``holds`` is True on some rank."""
        return self._begin(what, holds, operator.or_).wait()

    def enter(self, what: str) -> None:
        """Before other collectives that the script calls on this line: all ranks are here, or it is an error."""
        self.add(what, by_line=True)

    def gather(self, what: str, value: Any, *, by_line: bool = False) -> list[Any]:
        """What each rank gave, by rank; anything that can be pickled."""
        told = self._begin(what, {self.rank: pickle.dumps(value)}, operator.or_, by_line).wait()
        return [pickle.loads(told[rank]) for rank in range(self.world_size)]  # noqa: S301

    def _begin(self, what: str, mine: T, merge: Callable[[T, T], T], by_line: bool = False) -> Exchange[T]:
        if self._latest is not None:
            self._latest.wait()  # other ranks may wait for this one there; and its error comes first
        place = call_site() if by_line else ""
        exchange = self._latest = Exchange(self, what, self.tagged(what, f"{what} {place}", mine, merge))
        return exchange

    def tagged(self, what: str, tag: str, mine: T, merge: Callable[[T, T], T]) -> tree.Exchange[Tagged[T]]:
        def merged(one: Tagged[T], other: Tagged[T]) -> Tagged[T]:
            return (tag, merge(one[1], other[1])) if one[0] == other[0] == tag else (None, mine)

        with self.inside(what):
            return self._tree.begin((tag, mine), merged)

    @contextlib.contextmanager
    def inside(self, what: str) -> Iterator[None]:
        """Around the wait of a collective: RankupError if a rank has left, or does not come in time."""
        with self.waiting.here(what):
            try:
                yield
            except RuntimeError as error:
                raise self._failed(what, error) from None

    def _failed(self, what: str, error: RuntimeError) -> RankupError:
        hint = (
            "every rank must call it, on the same line: not under `if run.world.is_main:`, and no rank may end "
            "before"
        )
        waited = f"rank {self.rank} waited in {what} at {call_site()}"
        if "imed out" in str(error):
            said = f"{waited} for {self.timeout}, and not all ranks came: {self.waiting.others()}"
            return RankupError("collective-timeout", said, hint=hint, exit_code=1)
        ended = self.waiting.ended()
        said = f"{waited}, and {f'rank {ended[0]}' if ended else 'another rank'} has ended"
        return RankupError("rank-left", said, context=str(error).splitlines()[0], hint=hint, exit_code=1)

    def unequal(self, what: str) -> RankupError:
        """For tags that differ: all ranks are here, since all know it."""
        mine = {f"in {what} at {call_site()}": [self.rank]}
        tag, places = self.tagged(what, "where the ranks are", mine, _united).wait()
        return RankupError(
            "unequal-collectives",
            f"ranks are in different collectives: {by_place(places if tag else mine)}",
            hint="call each on all ranks, on the same line and equally often: not under `if run.world.is_main:`, and "
            "not in the body of run.batches, where ranks may have different numbers of batches",
            exit_code=1,
        )


class Exchange(Generic[T]):
    """An exchange in progress."""

    def __init__(self, control: Control, what: str, told: tree.Exchange[Tagged[T]]) -> None:
        self._control = control
        self._what = what
        self._told = told
        self._error: RankupError | None = None

    def wait(self) -> T:
        control = self._control
        if self._error is None:
            with control.inside(self._what):
                tag, value = self._told.wait()
            if tag is not None:
                return value
            self._error = control.unequal(self._what)
        raise self._error


def same_on_all(control: Control, what: str, mine: Mapping[str, Any]) -> bool:
    """Whether ``mine`` is the same on all ranks. A collective; ``what`` is for messages."""
    text = repr(sorted(mine.items())).encode()
    number = int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "big")
    (total,) = control.add(what, number)
    return total == number * control.world_size


def raise_on_all(control: Control | None, what: str, error: RankupError | None) -> None:
    """Raise the error of the lowest rank that has one on every rank. A collective."""
    if control is not None and control.any(what, error is not None):
        everyone = control.gather(what, None if error is None else error.as_dict())
        rank, told = next((rank, one) for rank, one in enumerate(everyone) if one is not None)
        if error is None or rank != control.rank:
            error = RankupError.of_rank(rank, told)
    if error is not None:
        raise error


def _sums(one: list[float], other: list[float]) -> list[float]:
    return list(map(operator.add, one, other))


def _united(one: dict[str, list[int]], other: dict[str, list[int]]) -> dict[str, list[int]]:
    return {place: sorted(one.get(place, []) + other.get(place, [])) for place in one | other}
