"""A batch; what a loop hands out at once, the batches of steps in a row at which nothing is due; and where it is.

The loop's own code runs once for a portion, and between the bodies of its steps none of it: read anew from memory after
each step of a small network, it would cost a twentieth of that step (``python -m benchmarks steps``). What is asked in
a body (which step, which batch) follows from how many batches the portion has given.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from itertools import chain, islice
from operator import length_hint
from typing import Any, NamedTuple, Protocol

_clock = time.perf_counter


class Batch(NamedTuple):
    """What one rank computes on at once. A step is one batch, or several micro-batches of which one is ``last``."""

    value: Any  # what the loop gets
    samples: int  # samples of this rank that count; 0 for a dummy batch, which only keeps collectives matched
    total: int  # samples of the whole step, over all ranks and micro-batches
    last: bool  # whether the optimizer steps after it
    part: int = 0  # which of the step's micro-batches, or of its virtual shards, it is
    dummies: bool = False  # whether some rank has a dummy batch in this step


# All of a ``Batch`` but its value.
Counts = tuple[int, int, bool, int, bool]


class Waits(Protocol):
    """Readings of ``time.perf_counter``, and their sum: when a batch was asked for, and when it was there."""

    asked: float
    got: float
    waited: float


class Portion(Protocol):
    """Batches that each are a step, and count as the same."""

    @property
    def values(self) -> Iterator[Any]:
        """What the bodies get."""
        ...

    @property
    def handed(self) -> int:
        """So many bodies have begun."""
        ...

    @property
    def done(self) -> int:
        """So many are over: all, while the next batch is made."""
        ...

    @property
    def batch(self) -> Batch:
        """That of the body that has begun last."""
        ...

    def cut(self) -> None:
        """It ends with the body at hand."""
        ...

    def check(self) -> None:
        """After it: raise the error that has ended it."""
        ...


class Ready:
    """The next batches of a feed, which count as the batch before: ``left`` of them (None: nobody knows) from
    ``values``. Who takes them from there gets them instead of the feed's iterator. ``made``: they need no work any
    more."""

    def __init__(self, values: Iterator[Any], left: int | None, *, made: bool = False) -> None:
        self.values = values
        self.left = left
        self.made = made

    def next(self) -> Any:
        """The next batch."""
        value = next(self.values)
        self.took(1)
        return value

    def took(self, batches: int) -> None:
        """So many are taken from ``values``; of a negative number, put back."""
        if self.left is not None:
            self.left -= batches


NOTHING = Ready(iter(()), 0)


class MadePortion:
    """Of ``first`` and up to ``most - 1`` that are made: no code of Python's runs between two bodies."""

    def __init__(self, first: Batch, ready: Ready, most: int) -> None:
        self._first, self._ready = first, ready
        self._others = [*islice(ready.values, min(most - 1, ready.left or 0))]
        ready.took(len(self._others))
        self._left = iter(self._others)
        self.values: Iterator[Any] = chain((first.value,), self._left)

    @property
    def handed(self) -> int:
        return 1 + len(self._others) - length_hint(self._left)

    @property
    def done(self) -> int:
        return self.handed - 1

    @property
    def batch(self) -> Batch:
        handed = self.handed
        return self._first if handed == 1 else self._first._replace(value=self._others[handed - 2])

    def cut(self) -> None:
        if left := [*self._left]:
            del self._others[-len(left) :]
            self._ready.values = chain(left, self._ready.values)
            self._ready.took(-len(left))

    def check(self) -> None:
        pass


class MakingPortion:
    """Of ``first`` and up to ``most - 1`` that follow; each is made when it is asked for."""

    def __init__(self, first: Batch, ready: Ready, most: int, waits: Waits) -> None:
        self.handed, self.done = 1, 0
        self._first, self._latest = first, first.value
        self._ready = ready
        self._most = most if ready.left is None else min(most, 1 + ready.left)
        self._error: BaseException | None = None
        self.values = self._give(ready.values, waits)

    @property
    def batch(self) -> Batch:
        return self._first._replace(value=self._latest)

    def cut(self) -> None:
        self._most = self.handed

    def check(self) -> None:
        self._ready.took(self.handed - 1)
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            # Its traceback holds this frame: a loop that failed would wait for the garbage collector.
            del error

    def _give(self, values: Iterator[Any], waits: Waits) -> Generator[Any, None, None]:
        yield self._latest
        while self.handed < self._most:
            self.done = self.handed
            waits.asked = asked = _clock()
            try:
                self._latest = value = next(values)
            except BaseException as error:  # is the loop's
                ended = isinstance(error, StopIteration) and self._ready.left is None
                self._error = None if ended else error
                return
            waits.got = got = _clock()
            waits.waited += got - asked
            self.handed += 1
            yield value


class _NoPortion:
    values: Iterator[Any] = iter(())
    handed = done = 0
    batch = Batch(None, 0, 0, True)

    def cut(self) -> None:
        pass

    def check(self) -> None:
        pass


#: Between portions.
NONE: Portion = _NoPortion()


class Position:
    """The epoch in progress and how many of its steps are done. With the seed, a resume needs nothing else of the data.

    A step counts as done once its last batch is handed out: in the loop's body, take the state after ``opt.step()``.
    ``total`` counts the steps of all epochs. ``ended`` is True while the code after the inner loop runs: a state taken
    there counts the epoch as finished, so that this code does not run again.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.ended = False
        self._step = self._total = 0  # without those of ``portion``
        self.portion: Portion = NONE  # that the loop gives now

    @property
    def step(self) -> int:
        return self._step + self.portion.handed

    @property
    def total(self) -> int:
        return self._total + self.portion.handed

    def advance(self, steps: int) -> None:
        """So many steps are done. The portion, if it gave them, is over."""
        self._step, self._total, self.portion = self._step + steps, self._total + steps, NONE

    def go_to(self, epoch: int, step: int) -> None:
        """Without the steps between."""
        self.epoch, self._step = epoch, step

    def end_epoch(self) -> None:
        """The code after the inner loop has run, too."""
        self.epoch, self._step, self.ended = self.epoch + 1, 0, False

    def resume(self) -> tuple[int, int]:
        """(epoch, step) for a run that resumes from here."""
        return (self.epoch + 1, 0) if self.ended else (self.epoch, self.step)

    def state(self) -> dict[str, Any]:
        """What a snapshot contains of it."""
        return {"at": list(self.resume()), "total": self.total}

    def load(self, saved: dict[str, Any]) -> None:
        """Restore what ``state`` gave."""
        self.epoch, self._step = saved["at"]
        self._total, self.ended = saved["total"], False


class Batches(chain[Any]):
    """What a script iterates over: the values of all portions. ``close`` ends it, as a generator's."""

    _portions: Generator[Iterable[Any], None, None]

    @classmethod
    def of(cls, portions: Generator[Iterable[Any], None, None]) -> Batches:
        made = cls.from_iterable(portions)
        assert isinstance(made, Batches)
        made._portions = portions
        return made

    def close(self) -> None:
        self._portions.close()
