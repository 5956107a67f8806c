"""Which event is the cause: by its level, by the rank that launchers name, by time and order."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import replace

from rankup.explain.events import Ending, Event, Facts
from rankup.explain.signatures.match import SIGNATURES
from rankup.explain.signatures.signature import EXIT_CODE, Level
from rankup.run.failure import earliest_cause

_BY_NAME = {signature.name: signature for signature in SIGNATURES}
_BY_SIGNAL = {
    -signal.SIGKILL: "killed-by-sigkill",
    -signal.SIGSEGV: "segmentation-fault",
    -signal.SIGABRT: "aborted",
    -signal.SIGBUS: "shared-memory",
    -signal.SIGILL: "illegal-instruction",
    -signal.SIGFPE: "floating-point-exception",
}


def first_ending(facts: Facts) -> Ending | None:
    """The end of a rank that caused the others, by the same order as `rankup run` uses, from what launchers say."""
    endings = (
        [e for e in facts.endings if e.root]
        or [e for e in facts.endings if e.launcher == "torchrun"]
        or [e for e in facts.endings if not e.local]
        or facts.endings
    )
    if facts.failed_rank is not None:
        named = [e for e in facts.endings if e.exit.rank == facts.failed_rank and e.exit.code != 0]
        endings = named or endings
    said: dict[int, str] = {}
    for event in sorted(facts.events, key=lambda event: (event.level is Level.ROOT, -event.order)):
        if event.rank is not None and (event.traceback or event.level is Level.ROOT):
            said[event.rank] = event.said
    exit = earliest_cause([ending.exit for ending in endings], lambda end: said.get(end.rank, ""))
    return next((ending for ending in endings if ending.exit == exit), None) if exit is not None else None


def earliest(candidates: Sequence[Event], cause: Ending | None, facts: Facts) -> tuple[Event, bool]:
    """(the first of them, whether nothing speaks against it). The rank that a launcher saw fail first goes before
    the order of the lines, which buffers mix up."""
    earliest = min(candidates, key=ordered(candidates))
    rank = (
        facts.failed_rank
        if facts.failed_rank is not None
        else cause.exit.rank
        if cause and cause.root
        else None
    )
    of_rank = [event for event in candidates if event.rank == rank or rank in event.others]
    if rank is None or not of_rank:
        several = {event.rank for event in candidates if event.signature is not earliest.signature}
        unordered = len({event.file for event in candidates}) > 1 and any(e.time is None for e in candidates)
        return earliest, not (unordered and several)
    chosen = min(of_rank, key=ordered(of_rank))
    return chosen, chosen is earliest or chosen.signature is earliest.signature or earliest.rank is None


def ordered(events: Sequence[Event]) -> Callable[[Event], tuple[float, int]]:
    """By time across files, if all tell it; else as they were read."""
    timed = len({event.file for event in events}) > 1 and all(event.time is not None for event in events)
    return lambda event: ((event.time or 0.0) if timed else 0.0, event.order)


def better(event: Event, facts: Facts) -> Event:
    """An event that explains ``event``, wherever it stands, also among warnings; else ``event``."""
    bare, named = event.signature, event.signature.better
    found = [other for name in named for other in facts.events if other.signature.name == name]
    if bare.bare:
        found += [e for e in facts.events if not e.signature.bare and e.level is Level.ROOT
                  and not e.traceback and set(e.signature.exits) & set(bare.exits)]  # fmt: skip
    if not found:
        return event
    cause = found[0]
    if cause.signature.setup:  # of mistakes before the program starts, the first leads to the next
        cause = min((other for other in found if other.signature.setup), key=ordered(found))
    quotes = dict.fromkeys((*cause.quotes[:1], *cause.quotes[-1:], *event.quotes[-1:]))
    merged = replace(cause, quotes=list(quotes), warning=False)
    merged.rank = cause.rank if cause.rank is not None else event.rank
    return merged


def explains(events: Sequence[Event], cause: Ending) -> bool:
    """Whether an event is the reason of that exit: one of the rank itself, or one whose signature ends so."""
    return any(cause.exit.code in event.signature.exits for event in events) or any(
        event.rank == cause.exit.rank for event in events
    )


def death(cause: Ending) -> Event | None:
    """A rank that was ended by a signal, and left no words."""
    if cause.exit.code == -signal.SIGTERM:
        return None
    signature = _BY_NAME.get(_BY_SIGNAL.get(cause.exit.code, ""), EXIT_CODE)
    quotes = list(cause.quotes)
    event = Event(signature, quotes, quotes[-1].text.strip(), 0, quotes[0].file, host=cause.host)
    if not cause.local:
        event.rank, event.others = cause.exit.rank, {cause.exit.rank}
    return event


def rank_that_left(facts: Facts) -> Event | None:
    lost = any(e.signature.name == "peer-closed-connection" for e in facts.events)
    event = next((e for e in facts.events if e.signature.name == "rank-left-early"), None)
    if event is None or not lost:
        return None
    cause = first_ending(facts)
    if cause is not None and cause.exit.code == -signal.SIGABRT:
        return replace(
            event, rank=cause.exit.rank, host=cause.host, quotes=[*event.quotes, *cause.quotes[-1:]]
        )
    return event
