"""A batch; what a loop hands out at once, the batches of steps in a row at which nothing is due; and where it is.

The loop's own code runs once for a portion, and between the bodies of its steps none of it: read anew from memory after
each step of a small network, it would cost a twentieth of that step (``python -m benchmarks steps``). What is asked in
a body (which step, which batch) follows from how many batches the portion has given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain, starmap
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

    #: Batches that the portion has taken and does not give, the last one first.
    behind: list[Batch]

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
    """What the next batches of a feed are made of, which count as the batch before: ``make(*piece)`` makes one.
    ``pieces`` has the last one first. Who takes pieces from there gets them instead of the feed's iterator."""

    def __init__(self, pieces: list[Any], make: Callable[..., Any] | None = None) -> None:
        """``make`` None: the pieces are the batches."""
        self.pieces = pieces
        self.make = make
        self.seconds = 0.0  # that one took to make

    def next(self) -> Any:
        """The next batch."""
        piece = self.pieces.pop()
        if self.make is None:
            return piece
        asked = _clock()
        value = self.make(*piece)
        self.seconds = _clock() - asked
        return value


class _Failing:
    """A portion that an error may end."""

    _error: BaseException | None = None

    def check(self) -> None:
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            # Its traceback holds this frame: a loop that failed would wait for the garbage collector.
            del error


class _ReadyPortion(_Failing):
    """Of ``first`` and up to ``most - 1`` that are ready to be made. The iterator of a list gives their pieces."""

    def __init__(self, first: Batch, ready: Ready, most: int) -> None:
        self.behind: list[Batch] = []
        self._first, self._ready = first, ready
        self._pieces = ready.pieces[:-most:-1]
        del ready.pieces[len(ready.pieces) - len(self._pieces) :]
        self._left = iter(self._pieces)

    def cut(self) -> None:
        if left := [*self._left]:
            self._ready.pieces += reversed(left)
            del self._pieces[-len(left) :]


class MadePortion(_ReadyPortion):
    """The pieces are the batches: no code of Python's runs between two bodies."""

    def __init__(self, first: Batch, ready: Ready, most: int) -> None:
        super().__init__(first, ready, most)
        self.values: Iterator[Any] = chain((first.value,), self._left)

    @property
    def handed(self) -> int:
        return 1 + len(self._pieces) - length_hint(self._left)

    @property
    def done(self) -> int:
        return self.handed - 1

    @property
    def batch(self) -> Batch:
        handed = self.handed
        return self._first if handed == 1 else self._first._replace(value=self._pieces[handed - 2])


class MakingPortion(_ReadyPortion):
    """Each batch is made when it is asked for. The clock is not read for it: what one took counts for all."""

    def __init__(self, first: Batch, ready: Ready, most: int, waits: Waits) -> None:
        super().__init__(first, ready, most)
        self.handed, self.done = 1, 0
        self._latest = first.value
        self._waits = waits
        self.values: Iterator[Any] = chain((first.value,), starmap(self._make, self._left))

    @property
    def batch(self) -> Batch:
        return self._first._replace(value=self._latest)

    def check(self) -> None:
        self._waits.waited += (self.handed - 1) * self._ready.seconds
        super().check()

    def _make(self, *piece: Any) -> Any:
        self.done = self.handed
        try:
            self._latest = value = self._ready.make(*piece)  # type: ignore[misc]  # there is one
        except BaseException as error:  # is the loop's
            self._error = error
            raise StopIteration from None
        self.handed += 1
        return value


class AskedPortion(_Failing):
    """Of up to ``most`` batches, the ``first`` of which is there; each of the others is made when it is asked for."""

    def __init__(self, first: Batch, others: Iterator[Batch], most: int, waits: Waits) -> None:
        self.batch = first
        self.behind: list[Batch] = []
        self.handed, self.done = 1, 0
        self._most = most
        self.values = self._give(first, others, waits)

    def cut(self) -> None:
        self._most = self.handed

    def _give(self, batch: Batch, others: Iterator[Batch], waits: Waits) -> Generator[Any, None, None]:
        alike = batch[1:]
        yield batch.value
        while self.handed < self._most:
            self.done = self.handed
            waits.asked = asked = _clock()
            try:
                following = next(others, None)
            except BaseException as error:  # is the loop's
                self._error = error
                return
            if following is None:
                return
            if following[1:] != alike:
                self.behind.append(following)
                return
            waits.got = got = _clock()
            waits.waited += got - asked
            self.batch = batch = following
            self.handed += 1
            yield batch.value


class _NoPortion(_Failing):
    values: Iterator[Any] = iter(())
    handed = done = 0
    batch = Batch(None, 0, 0, True)
    behind: list[Batch] = []  # noqa: RUF012  # nobody adds to it

    def cut(self) -> None:
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
