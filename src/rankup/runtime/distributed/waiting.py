"""Which rank waits where: a rank that has waited long for the others reports it, and where each of them is.

So does a rank whose loop has finished no step for long: the gradients are reduced by torch, out of rankup's sight, and
another rank may wait for its data. A thread of each process checks every few seconds. Ranks ask and answer through the
store of the process group, which works also while all of them wait in collectives.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from rankup.runtime.call_site import call_site
from rankup.world import World

WAIT_S = 30.0  # before anything is said
POLL_S = 2.0
ANSWER_S = 2 * POLL_S + 2.0
_PREFIX = "rankup-waiting"

# The finished steps of the loop that is running, None between its epochs; whether it waits for a batch.
Progress = tuple[int | None, bool]


class Waiting:
    """Of one process."""

    def __init__(self, world: World) -> None:
        self._rank = world.rank
        self._world_size = world.world_size
        self._main = threading.get_ident()
        self._now: tuple[str, float] | None = None  # what the main thread waits in, and since when
        self._progress: Callable[[], Progress] = _no_loop
        self._store = _store()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rankup-waiting", daemon=True)
        if self._store is not None:
            self._thread.start()

    @contextlib.contextmanager
    def here(self, what: str) -> Iterator[None]:
        """Around a collective."""
        before, self._now = self._now, (what, time.monotonic())
        try:
            yield
        finally:
            self._now = before

    def watch(self, progress: Callable[[], Progress] | None) -> None:
        """A loop begins; None: it is over."""
        self._progress = progress or _no_loop

    def end(self) -> None:
        """The process leaves its group. The store tells the others."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)
        with contextlib.suppress(RuntimeError, ValueError):
            if self._store is not None:
                self._store.set(f"left/{self._rank}", "")

    def others(self) -> list[str]:
        """Where the other ranks are, if they answer: ``rank 1 is at train.py:40``."""
        try:
            return self._ask(self._store.add("asked", 1)) if self._store is not None else []
        except RuntimeError:  # the store was a rank's that has ended
            return []

    def ended(self) -> list[int]:
        """The ranks that have called ``end``."""
        try:
            ranks = range(self._world_size) if self._store is not None else ()
            return [rank for rank in ranks if self._store.check([f"left/{rank}"])]
        except RuntimeError:  # the store was of a rank that has ended
            return []

    def tell_all(self, topic: str, text: str) -> list[str]:
        """``rank 0 in TEXT`` for each rank that answers within some seconds."""
        store = self._store
        if store is None:
            return [f"rank {self._rank} in {text}"]
        try:
            store.set(f"{topic}/{self._rank}", text)
            told = [f"rank {rank} in {said}" for rank, said in self._answers(store, topic)]
            deadline = time.monotonic() + POLL_S
            read = store.add(f"{topic}/read", 1)
            while self._rank == 0 and read < len(told) and time.monotonic() < deadline:
                time.sleep(0.02)  # the store is rank 0's, mostly, and ends with it
                read = store.add(f"{topic}/read", 0)
            return told
        except RuntimeError:
            return [f"rank {self._rank} in {text}"]

    # ------------------------------------------------------------------ inside

    def _watch(self) -> None:
        answered, said = 0, None
        stalls = Stalls(WAIT_S, time.monotonic())
        try:
            while not self._over.wait(POLL_S):
                waits, now = self._now, time.monotonic()
                stalled = stalls.seconds(self._progress()[0], now)
                if waits is not None and waits is not said and now - waits[1] >= WAIT_S:
                    said = waits
                    long = f"has waited {now - waits[1]:.0f} s in"
                    self._say(f"rank {self._rank} {long} {self._where()}", answered)
                elif stalled is not None and waits is None:
                    long = f"no step for {stalled:.0f} s"
                    self._say(f"{long}: rank {self._rank} is at {self._where()}", answered)
                asked = self._store.add("asked", 0)
                for number in range(answered + 1, asked + 1):
                    self._store.set(f"where/{number}/{self._rank}", self._where())
                    stalls.told()
                answered = asked
        except RuntimeError:
            return  # the store is gone, with the rank that had it

    def _say(self, what: str, answered: int) -> None:
        """Only one rank reports, even if several wait."""
        if self._store.add("asked", 0) > answered:
            return
        number = self._store.add("asked", 1)
        if number > answered + 1:  # another rank has asked at the same moment, and waits for this one
            return
        print("; ".join([f"rankup: {what}", *self._ask(number)]), file=sys.stderr, flush=True)

    def _ask(self, number: int) -> list[str]:
        self._store.set(f"where/{number}/{self._rank}", self._where())
        said = dict(self._answers(self._store, f"where/{number}"))
        found = []
        for rank in range(self._world_size):
            if rank == self._rank:
                continue
            if self._store.check([f"left/{rank}"]):
                found.append(f"rank {rank} has ended")
            elif rank in said:
                found.append(f"rank {rank} is at {said[rank]}")
            else:
                found.append(f"rank {rank} does not answer")
        return found

    def _answers(self, store: Any, topic: str) -> list[tuple[int, str]]:
        """(rank, its answer), of the ranks that answer in time."""
        deadline = time.monotonic() + ANSWER_S
        told: dict[int, str] = {}
        while True:
            for rank in range(self._world_size):
                if rank not in told and store.check([f"{topic}/{rank}"]):
                    told[rank] = store.get(f"{topic}/{rank}").decode()
            gone = sum(store.check([f"left/{rank}"]) for rank in range(self._world_size) if rank not in told)
            if len(told) + gone >= self._world_size or time.monotonic() > deadline:
                return sorted(told.items())
            time.sleep(0.2)

    def _where(self) -> str:
        """What the main thread does now."""
        frame = sys._current_frames().get(self._main)
        place = call_site(frame) if frame is not None else "its end"
        waits = self._now
        if waits is not None:
            return f"{waits[0]} at {place}"
        return f"{place}, waiting for a batch" if self._progress()[1] else place


def _no_loop() -> Progress:
    return None, False


def _store() -> Any:
    """The process group's store, under rankup's prefix, by a connection of its own if torch can make one."""
    try:
        from torch.distributed.distributed_c10d import _get_default_store

        store: Any = _get_default_store()
        with contextlib.suppress(AttributeError, RuntimeError, NotImplementedError):
            store = store.clone()
        store = dist.PrefixStore(_PREFIX, store)  # type: ignore[attr-defined]
        store.set_timeout(timedelta(seconds=30))
    except (ImportError, RuntimeError, ValueError, AttributeError):
        return None
    return store


FACTOR = 10.0  # times the longest step until then: a body may evaluate now and then
FIRST = 4.0  # times the wait for any other step: the first one may compile


class Stalls:
    """Of the loops of one process, looked at every few seconds. ``wait_s``: at least so long takes a stall. ``now`` is
    the time of the monotonic clock."""

    def __init__(self, wait_s: float, now: float) -> None:
        self._wait_s = wait_s
        self._steps: int | None = None
        self._since = now
        self._longest = 0.0
        self._told = False

    def seconds(self, steps: int | None, now: float) -> float | None:
        """For how long the step in progress has stalled, if it has and nobody has told. ``steps``: how many the loop
        has finished; None between the steps of two epochs, where a script may do what it likes."""
        if steps != self._steps:
            if steps is not None:
                self._longest = max(self._longest, now - self._since)
            self._steps, self._since, self._told = steps, now, False
        if steps is None:
            self._since = now
            return None
        enough = max(self._wait_s, FACTOR * self._longest) if steps else FIRST * self._wait_s
        waited = now - self._since
        return waited if waited >= enough and not self._told else None

    def told(self) -> None:
        """The stall in progress, if there is one, needs no message any more."""
        self._told = True
