"""Which rank waits where: a rank that has waited long for the others reports it, and where each of them is.

So does a rank whose loop has finished no step for long: the gradients are reduced by torch, out of rankup's sight, and
another rank may wait for its data. A thread of each process checks every few seconds. Ranks ask and answer through the
store of the process group, which works also while all of them wait in collectives. One rank of each place tells its
plain values too: what differs has decided otherwise there.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from rankup.core.whole_lines import say
from rankup.runtime.call_site import call_site
from rankup.world import World

WAIT_S = 30.0  # before anything is said
POLL_S = 2.0  # at least; more ranks look less often
POLLS_PER_S = 500.0  # of all ranks together, at most: one rank's store serves them
NAMED = 8  # ranks, and places, in one message
_PREFIX = "rankup-waiting"
_FOR_DATA = ", waiting for a batch"
_UNKNOWN = "it is not known where they are"

# Names and values of ``run.register``.
Registered = Iterable[tuple[str, Any]]
# The steps that have begun, None between the epochs of a loop; whether it waits for a batch.
Progress = tuple[int | None, bool]


class Waiting:
    """Of one process."""

    def __init__(self, world: World) -> None:
        self._rank = world.rank
        self._world_size = world.world_size
        self._poll_s = max(POLL_S, world.world_size / POLLS_PER_S)
        self._answer_s = 2 * self._poll_s + 2.0
        self._main = threading.get_ident()
        self._now: tuple[str, float] | None = None  # what the main thread waits in, and since when
        self._progress: Callable[[], Progress] = _no_loop
        self._registered: Registered = ()
        self._store = _store()
        self._answered = 0  # questions of other ranks and of this one
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

    def watch(self, progress: Callable[[], Progress] | None, registered: Registered = ()) -> None:
        """A loop begins, with the values of ``run.register``; None: it is over."""
        self._progress, self._registered = progress or _no_loop, registered

    def end(self) -> None:
        """The process leaves its group. The store tells the others."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)
        with contextlib.suppress(RuntimeError, ValueError):
            if self._store is not None:
                self._store.append("left", f"{self._rank} ")

    def others(self) -> str:
        """Where the ranks are, as far as they answer: ``rank 1 is at train.py:40``. If several ranks want to know, one
        asks, and all of them read what it has heard."""
        try:
            return self._heard() if self._store is not None else _UNKNOWN
        except RuntimeError:  # the store was a rank's that has ended
            return _UNKNOWN

    def ended(self) -> list[int]:
        """The ranks that have called ``end``, the first one first."""
        try:
            known = self._store is not None and self._store.check(["left"])
            return list(map(int, self._store.get("left").split())) if known else []
        except RuntimeError:  # the store was of a rank that has ended
            return []

    # ------------------------------------------------------------------ inside

    def _watch(self) -> None:
        said = None
        stalls = Stalls(WAIT_S, time.monotonic())
        try:
            while not self._over.wait(self._poll_s):
                waits, now, before = self._now, time.monotonic(), self._answered
                stalled = stalls.seconds(self._progress()[0], now)
                if waits is not None and waits is not said and now - waits[1] >= WAIT_S:
                    said = waits
                    self._say(f"rank {self._rank} has waited {now - waits[1]:.0f} s in {self._where()}")
                elif stalled is not None and waits is None:
                    self._say(f"no step for {stalled:.0f} s: rank {self._rank} is at {self._where()}")
                asked = self._store.add("asked", 0)
                if asked > before:
                    stalls.told()
                for number in range(self._answered + 1, asked + 1):
                    self._answer(number)
        except RuntimeError:
            return  # the store is gone, with the rank that had it

    def _say(self, what: str) -> None:
        """Only one rank reports, even if several wait."""
        number = self._answered + 1
        if self._store.add(f"claimed/{number}", 1) > 1:
            return  # another rank asks, and waits for this one's answer
        self._answer(number)
        places, differs = self._ask(number)
        others = {
            place: few for place, ranks in places.items() if (few := [r for r in ranks if r != self._rank])
        }
        say(f"rankup: {what}; {by_place(others)}{differs}")

    def _heard(self) -> str:
        store, said = self._store, _UNKNOWN
        number = store.add("asked", 0)
        number += number == 0 or store.check([f"said/{number}"])  # else that question is not answered yet
        if store.add(f"claimed/{number}", 1) == 1:
            said = _described(*self._ask(number))
        deadline = time.monotonic() + self._answer_s + self._poll_s
        while said == _UNKNOWN and time.monotonic() < deadline:
            if store.check([f"said/{number}"]):
                said = store.get(f"said/{number}").decode()
            else:
                time.sleep(self._poll_s / 4)
        deadline = time.monotonic() + self._poll_s
        read = store.add(f"read/{number}", 1)
        while self._rank == 0 and read < store.add(f"claimed/{number}", 0) and time.monotonic() < deadline:
            time.sleep(0.02)  # the store is rank 0's, mostly, and ends with it
            read = store.add(f"read/{number}", 0)
        return said

    def _answer(self, number: int) -> None:
        place = self._where()
        if self._store.add(f"at/{number}/{place}", 1) == 1:
            from rankup.runtime.distributed.differing import plain_values

            values = plain_values(sys._current_frames().get(self._main), self._registered)
            self._store.append(f"values/{number}", json.dumps([self._rank, values]) + "\n")
        self._store.append(f"where/{number}", f"{self._rank} {place}\n")
        self._store.add(f"answers/{number}", 1)
        self._answered = number

    def _ask(self, number: int) -> tuple[dict[str, list[int]], str]:
        """The ranks at each place, and what differs between places."""
        store = self._store
        store.add("asked", 1)
        deadline = time.monotonic() + self._answer_s
        while time.monotonic() < deadline:
            if store.add(f"answers/{number}", 0) + len(self.ended()) >= self._world_size:
                break
            time.sleep(0.2)
        text = store.get(f"where/{number}").decode() if store.check([f"where/{number}"]) else ""
        told = {
            int(rank): f"is at {place}"
            for rank, _, place in (line.partition(" ") for line in text.splitlines())
        }
        told |= dict.fromkeys(self.ended(), "has ended")
        places: dict[str, list[int]] = {}
        for rank in range(self._world_size):
            places.setdefault(told.get(rank, "does not answer"), []).append(rank)
        apart = len(set(told.values())) > 1 and not any(place.endswith(_FOR_DATA) for place in places)
        differs = self._differing(number) if apart else ""
        store.set(f"said/{number}", _described(places, differs))
        return places, differs

    def _differing(self, number: int) -> str:
        from rankup.runtime.distributed.differing import differing

        lines = self._store.get(f"values/{number}").decode().splitlines()
        said = differing(dict(map(json.loads, lines)))
        return f". What differs there: {said}" if said else ""

    def _where(self) -> str:
        """What the main thread does now."""
        frame = sys._current_frames().get(self._main)
        place = call_site(frame) if frame is not None else "its end"
        waits = self._now
        if waits is not None:
            return f"{waits[0]} at {place}"
        return f"{place}{_FOR_DATA}" if self._progress()[1] else place


def _described(places: Mapping[str, Sequence[int]], differs: str) -> str:
    return by_place(places) + differs


_SEVERAL = {"is": "are", "has": "have", "does": "do"}


def by_place(places: Mapping[str, Sequence[int]]) -> str:
    """``rank 3 is at train.py:40; ranks 0, 1, 2 are at train.py:52``: the fewest first, and of many ranks the first."""
    parts = []
    for place, ranks in sorted(places.items(), key=lambda item: (len(item[1]), item[1])):
        verb, _, rest = place.partition(" ")
        several = f"{_SEVERAL.get(verb, verb)} {rest}"
        named = ", ".join(map(str, ranks[:NAMED])) + (
            f" and {len(ranks) - NAMED} more" if ranks[NAMED:] else ""
        )
        parts.append(f"ranks {named} {several}" if ranks[1:] else f"rank {named} {place}")
    more = [f"{len(parts) - NAMED} more places"] if parts[NAMED:] else []
    return "; ".join(parts[:NAMED] + more)


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
