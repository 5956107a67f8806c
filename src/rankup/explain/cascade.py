"""What followed from the cause, in a few lines, and what else a reader has to know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from rankup.explain.events import Event, Facts
from rankup.explain.signatures.signature import PYTHON_EXCEPTION, Level
from rankup.explain.watchdog import ranks_text

_MOST = 4


def cascade_of(cause: Event, facts: Facts, rank: int | None = None, same: Collection[int] = ()) -> list[str]:
    """For each kind of failure that is not the cause: which ranks had it."""
    rank = cause.rank if rank is None else rank
    kinds: dict[str, set[int]] = defaultdict(set)
    words: dict[str, str] = {}
    for event in facts.events:
        name = event.signature.name
        if (
            event is cause
            or event.warning
            or event.level <= Level.REPORT  # everybody knows that the job failed
            or event.survived
        ):
            continue
        if event.rank == rank and (name == cause.signature.name or event.order < cause.order):
            continue
        if name == cause.signature.name and (event.rank is None or event.rank in same):
            continue
        exception = name == PYTHON_EXCEPTION.name
        key = event.said.split(":")[0] if exception else name
        words.setdefault(key, f"`{event.said[:120]}`" if exception else event.signature.what)
        kinds[key] |= {event.rank} if event.rank is not None else set()
    lines = []
    for key, ranks in list(kinds.items())[:_MOST]:
        who = f"{ranks_text(ranks)}: " if ranks else ""
        lines.append(f"{who}{words[key]} [{key}]" if not words[key].startswith("`") else f"{who}{words[key]}")
    if len(kinds) > _MOST:
        lines.append(f"and {len(kinds) - _MOST} other kinds of failures")
    return lines + survived_lines(facts, cause) + facts.notes


def survived_lines(facts: Facts, cause: Event | None = None) -> list[str]:
    """The first error after which the program went on, if there is one."""
    survived = [e for e in facts.events if e.survived and e.level is Level.ROOT and e is not cause]
    if cause is None:
        survived += [event for event in facts.events if event.signature.setup]
    if not survived:
        return []
    first = survived[0]
    place = f"{first.quotes[-1].file}:{first.quotes[-1].line}"
    return [f"earlier, and the program went on: {place}: {first.said[:120]}"]
