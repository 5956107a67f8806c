"""The control group: the small numbers on the host that ranks exchange. It uses gloo, also if the model is on GPUs.

Ranks may be in different exchanges: one calls ``run.sum`` under ``if run.world.is_main:``, the others are at the end of
an epoch. Their numbers would be added up. So all exchanges have the same form, with a tag that says what the exchange
is for: if the tags differ, all of these ranks get an error, and none gets a sum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from rankup.errors import RankupError
from rankup.runtime.call_site import call_site
from rankup.runtime.distributed.waiting import Waiting
from rankup.world import World

_WIDTH = 4  # numbers of one exchange
_TAG_BITS = 36  # a sum over 100,000 ranks is a whole number of a float64 still


class Control:
    """The ranks' control group. Its methods are collectives: all ranks call them in the same order."""

    def __init__(self, group: dist.ProcessGroup, world: World, timeout: timedelta) -> None:
        self.group = group
        self.world_size = world.world_size
        self.waiting = Waiting(world)
        self._rank = world.rank
        self._timeout = timeout
        self._number = 0  # of exchanges until now

    def add(self, what: str, *numbers: float, by_line: bool = False) -> list[float]:
        """The sums over ranks of up to four numbers. ``what`` is for messages, and must be the same on all ranks, as
        must the line of the script be with ``by_line``.

        Raises RankupError if ranks are in different exchanges, if one has left, and after the group's timeout.
        """
        return self.begin(what, *numbers, by_line=by_line).wait()

    def begin(self, what: str, *numbers: float, by_line: bool = False) -> Exchange:
        """``add`` whose sums are there after ``wait()``."""
        self._number += 1
        place = call_site() if by_line else ""
        message = torch.zeros(1 + _WIDTH, dtype=torch.float64)
        message[0] = _tag(f"{what} {place}")
        message[1 : 1 + len(numbers)] = torch.tensor(numbers, dtype=torch.float64)
        return Exchange(self, what, self._number, message, len(numbers))

    def any(self, what: str, holds: bool) -> bool:
        """Whether ``holds`` is True on some rank."""
        return self.add(what, float(holds))[0] > 0

    def enter(self, what: str) -> None:
        """Before other collectives that the script calls on this line: all ranks are here, or it is an error."""
        self.add(what, by_line=True)

    def gather(self, what: str, value: Any, *, by_line: bool = False) -> list[Any]:
        """What each rank gave, by rank; anything that can be pickled."""
        self.add(what, by_line=by_line)
        everyone: list[Any] = [None] * self.world_size
        with self.inside(what):
            dist.all_gather_object(everyone, value, group=self.group)
        return everyone

    @contextmanager
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
        waited = f"rank {self._rank} waited in {what} at {call_site()}"
        if "imed out" in str(error):
            said = f"{waited} for {self._timeout}, and not all ranks came: {'; '.join(self.waiting.others())}"
            return RankupError("collective-timeout", said, hint=hint, exit_code=1)
        ended = self.waiting.ended()
        said = f"{waited}, and {f'rank {ended[0]}' if ended else 'another rank'} has ended"
        return RankupError("rank-left", said, context=str(error).splitlines()[0], hint=hint, exit_code=1)

    def unequal(self, what: str, number: int) -> RankupError:
        """For tags that differ. No collective: each rank writes what it was doing to the store."""
        told = self.waiting.tell_all(f"exchange/{number}", f"{what} at {call_site()}")
        return RankupError(
            "unequal-collectives",
            "ranks are in different collectives: " + "; ".join(told),
            hint="call each on all ranks, on the same line and equally often: not under `if run.world.is_main:`, and "
            "not in the body of run.batches, where ranks may have different numbers of batches",
            exit_code=1,
        )


def same_on_all(control: Control, what: str, mine: Mapping[str, Any]) -> bool:
    """Whether ``mine`` is the same on all ranks. A collective; ``what`` is for messages."""
    text = repr(sorted(mine.items())).encode()
    number = int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "big")
    (total,) = control.add(what, number)
    return total == number * control.world_size


def raise_on_all(control: Control | None, what: str, error: RankupError | None) -> None:
    """Raise ``error`` on every rank if some rank has one. A collective."""
    if control is not None and control.any(what, error is not None):
        everyone = control.gather(what, None if error is None else error.as_dict())
        error = RankupError.from_dict(next(one for one in everyone if one is not None))
    if error is not None:
        raise error


class Exchange:
    """An exchange in progress."""

    def __init__(self, control: Control, what: str, number: int, message: torch.Tensor, length: int) -> None:
        self._control = control
        self._what = what
        self._number = number
        self._tag = float(message[0])
        self._message = message
        self._length = length
        with control.inside(what):
            self._work = dist.all_reduce(message, group=control.group, async_op=True)

    def wait(self) -> list[float]:
        control = self._control
        with control.inside(self._what):
            assert self._work is not None
            self._work.wait()
        tag, *numbers = self._message.tolist()
        if tag != control.world_size * self._tag:
            raise control.unequal(self._what, self._number)
        return numbers[: self._length]


def _tag(text: str) -> float:
    return float(
        int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> (64 - _TAG_BITS)
    )
