"""From facts to the cause: a literal table of judges, of which the first that finds something decides. No I/O."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from rankup.explain.cascade import cascade_of
from rankup.explain.choose import better, death, earliest, explains, first_ending, ordered, rank_that_left
from rankup.explain.events import Ending, Event, Facts, Quote
from rankup.explain.explanation import Explanation
from rankup.explain.log_reader import SOURCE
from rankup.explain.signatures.match import signature_of
from rankup.explain.signatures.signature import CUT_OFF, ERROR_LINE, EXIT_CODE, Level
from rankup.explain.verdict import (
    barrier_verdict,
    place_of,
    shortened,
    timeout_verdict,
    verdict,
    watchdog_verdict,
)
from rankup.explain.watchdog import ranks_text
from rankup.findings.engine import first
from rankup.findings.finding import Confidence, Finding, Severity

_OWN_LINES = 3  # of a warning: the code that it warns of
_WENT_ON = 30  # ordinary lines after a complaint of a job's shell
_ENDED_WELL = re.compile(
    r"\b(?:done|finished|completed|(?<!to )complete|success\w*|saved|elapsed|total time|took"
    r"|exit(?:ed)? (?:with )?code:? 0)\b|100%",
    re.IGNORECASE,
)
# What launchers and schedulers do to the others once a rank has failed.
_ENDED_FROM_OUTSIDE = ("cancelled", "terminated-from-outside", "pbs-deleted", "interrupted")


def explain(facts: Facts) -> Explanation | None:
    """Why the job failed; None if its logs show no failure."""
    found = first(JUDGES, facts)
    return found if isinstance(found, Explanation) else None


def own_error(facts: Facts) -> Iterator[Finding]:
    """A rank has an error of its own, or was ended by a signal: this goes before all that waited for it."""
    roots = [event for event in facts.events if event.level is Level.ROOT and not event.warning]
    fresh = [event for event in roots if not event.survived]
    cause = first_ending(facts)
    if (
        cause is not None
        and cause.exit.code < 0
        and not _aborted_by(cause, facts)
        and not explains(fresh, cause)
    ):
        died = death(cause)
        if died is not None and (cause.root or not fresh):
            fresh = [died, *(event for event in fresh if event.rank == cause.exit.rank)]
            died.order = min((event.order for event in fresh[1:]), default=0) - 1
            yield verdict(died, facts, cause, sure=cause.root)
            return
    failed = (
        bool(facts.endings)
        or facts.failed
        or any(e.level is not Level.NOISE for e in facts.events if not e.survived)
    )
    candidates = fresh or (roots if failed else [])
    if not candidates:
        return
    chosen, agreed = earliest(_without_caught(candidates, facts), cause, facts)
    chosen = better(chosen, facts)
    if not _may_be_caught(chosen, facts):
        yield verdict(chosen, facts, cause, sure=agreed and not chosen.survived)
        return
    found = verdict(chosen, facts, cause, sure=False)
    yield replace(
        found,
        message=found.message.replace("the job failed:", "the job may have failed:", 1),
        why=f"{found.why}; lines follow it, and nothing in the log says that the job failed: the script may also have "
        "caught it and gone on",
    )


def _aborted_by(cause: Ending, facts: Facts) -> bool:
    """Whether a rank aborted itself because of what somebody says: it waited in vain, or lost another rank."""
    return cause.exit.code == -signal.SIGABRT and any(
        event.level in (Level.WEAK, Level.FALLOUT)
        and not (event.warning or event.survived or event.signature.bare)
        for event in facts.events
    )


def _may_be_caught(event: Event, facts: Facts) -> bool:
    """Whether the script may have printed a traceback and gone on: ordinary lines follow, and nobody else tells of a
    failure. They may also be what was still in the buffer of stdout."""
    return event.traceback and event.after > 0 and not _is_told(facts)


def _without_caught(events: Sequence[Event], facts: Facts) -> Sequence[Event]:
    """A traceback that ends what a process wrote goes before those after which it went on. Where other ranks may write
    without labels, the lines that follow may be theirs."""
    one_writer = {ending.exit.rank for ending in facts.endings} <= {0}
    last = {
        (e.file, e.rank): e.order
        for e in events
        if e.traceback and not e.after and (e.labelled or one_writer)
    }
    return [e for e in events if not (e.traceback and e.after and last.get((e.file, e.rank), 0) > e.order)]


def _is_told(facts: Facts) -> bool:
    """Whether somebody else than the error itself tells that the job failed."""
    told = (Level.FALLOUT, Level.REPORT)
    return bool(facts.endings or facts.failed or any(e.level in told and not e.warning for e in facts.events))


def _went_on(event: Event, facts: Facts) -> bool:
    """Whether the script went on after a complaint, and came to its end."""
    went_on = event.after >= _WENT_ON or (event.after > 0 and _ended_well(facts))
    return went_on and not _is_told(facts) and not facts.suspects


def _ended_well(facts: Facts) -> bool:
    return any(_ENDED_WELL.search(quote.text) for _, quotes in facts.last for quote in quotes)


def open_end(facts: Facts) -> Quote | None:
    """The last line of logs without a failure, if they show no end either: a job that hangs writes nothing more."""
    lines = [quote for _, quotes in facts.last for quote in quotes]
    return lines[-1] if lines and not _ended_well(facts) else None


def waited(facts: Facts) -> Iterator[Finding]:
    """Nobody has an error of its own: somebody waited in vain, or was ended from outside."""
    weak = [event for event in facts.events if event.level is Level.WEAK and not event.warning]
    fresh = [event for event in weak if not event.survived] or weak
    fresh = [event for event in fresh if not event.signature.setup] or fresh
    told = [event for event in fresh if not event.signature.bare]
    if not told and any(event.level is Level.FALLOUT and not event.warning for event in facts.events):
        return  # a process ended itself because it had lost another rank
    fresh = told or fresh
    if not fresh:
        return
    chosen = better(min(fresh, key=ordered(fresh)), facts)
    if all(event.signature.setup and _went_on(event, facts) for event in fresh):
        return
    cause = first_ending(facts)
    if (
        chosen.signature.name in _ENDED_FROM_OUTSIDE
        and cause is not None
        and cause.exit.code not in (-signal.SIGTERM, 143)
    ):
        return  # a rank had failed before, and its exit code is all there is
    if any(event.signature.name == "nccl-watchdog" for event in fresh) and chosen.signature.name in (
        "nccl-watchdog",
        "gloo-timeout",
    ):
        yield watchdog_verdict(chosen, facts)
        return
    left = rank_that_left(facts)
    if left is not None:
        yield verdict(left, facts, None, sure=True)
        return
    if chosen.signature.name == "gloo-timeout":
        yield timeout_verdict(chosen, facts)
        return
    if chosen.signature.name == "monitored-barrier":
        yield barrier_verdict(chosen, facts)
        return
    yield verdict(chosen, facts, None, sure=True, waited=True)


def left_early(facts: Facts) -> Iterator[Finding]:
    """A rank had come to its end while others still communicated."""
    event = rank_that_left(facts)
    if event is not None:
        yield verdict(event, facts, None, sure=True)


def exit_code(facts: Facts) -> Iterator[Finding]:
    """A launcher names the rank that failed first, and nothing that is known was printed."""
    cause = first_ending(facts)
    if cause is None:
        return
    rank = None if cause.local else cause.exit.rank
    if cause.exit.code in (1, -signal.SIGABRT) and any(
        e.level is Level.FALLOUT and (cause.local or e.rank == rank) for e in facts.events
    ):
        return  # it did write why: it lost another rank
    near = [quote for event in facts.suspects if event.rank in (None, rank) for quote in event.quotes][:1]
    event = Event(
        EXIT_CODE, [*(near or last_words(facts, rank)), *cause.quotes], f"exit code {cause.exit.code}", 0, ""
    )
    event.rank, event.host = rank, cause.host
    yield verdict(event, facts, cause, sure=False)


def consequences(facts: Facts) -> Iterator[Finding]:
    """All that is in the logs follows from something that is not."""
    fallout = [
        event
        for event in facts.events
        if event.level is Level.FALLOUT and not event.warning and not event.survived
    ]
    if not fallout:
        return
    event = min(fallout, key=ordered(fallout))
    if facts.left:
        ranks = sorted({ending.exit.rank for ending in facts.left})
        lost = f"rank {event.rank}" if event.rank is not None else "another rank"
        yield Explanation(
            "rank-left-early", Severity.ERROR, f"{ranks_text(ranks)} ended early, with exit code 0; {lost} then failed",
            place=place_of(event), why="the script had come to its end there while other ranks still communicated",
            fix="all ranks have to take as many steps; look for a return or sys.exit() that some ranks reach",
            rank=ranks[0] if len(ranks) == 1 else None,
            quotes=(*facts.left[0].quotes, *event.quotes),
            cascade=tuple(cascade_of(event, facts)),
        )  # fmt: skip
        return
    who = f"rank {event.rank}" if event.rank is not None else "a process"
    everybody = facts.ranks
    if len(facts.ranks) > 1 and max(facts.ranks) < 2 * len(facts.ranks):
        everybody = set(range(max(facts.ranks) + 1))  # those between, of which no labelled line is there
    silent = sorted(everybody - {e.rank for e in facts.events if e.rank is not None})
    hint = (
        "look in the logs of other ranks and nodes, and at what the scheduler says (`sacct -j JOB`, `qstat -xf JOB`); "
        "a rank that left early without an error (sys.exit(), fewer steps) writes none"
    )
    if silent:
        hint = (
            f"{ranks_text(silent)} wrote no error: begin there (without an error it had fewer steps than the others); "
            f"else {hint}"
        )
    yield Explanation(
        "unknown", Severity.ERROR,
        f"unknown: {who} failed because of another rank, whose own error is not in the logs",
        place=place_of(event), why=event.signature.cause, fix=hint, confidence=Confidence.LIKELY, rank=None,
        quotes=tuple(event.quotes), cascade=tuple(cascade_of(event, facts)),
    )  # fmt: skip


def ended_from_outside(facts: Facts) -> Iterator[Finding]:
    """A process was told to end, and nobody says that another rank was lost."""
    events = [e for e in facts.events if e.signature.name == "terminated" and not e.survived]
    if events:
        yield verdict(events[0], facts, None, sure=False)


def warned(facts: Facts) -> Iterator[Finding]:
    """Nobody tells why the job failed, and a warning names what ends jobs: a launcher tells that it failed, or nothing
    of the program follows the warning."""
    told = any(e.level is Level.REPORT and not e.warning and not e.survived for e in facts.events)
    events = [e for e in facts.events if e.level is Level.ROOT and e.warning and not e.survived]
    if not told:
        events = [e for e in events if e.after <= _OWN_LINES and not _ended_well(facts)]
    if events:
        found = verdict(max(events, key=ordered(events)), facts, None, sure=False)
        why = f"{found.why}; the log calls it a warning, and nothing else in it says why the job failed"
        yield replace(found, why=why)


def last_said(facts: Facts) -> Iterator[Finding]:
    """The last lines name a failure that no word of theirs calls one: the text of an exception without its name."""
    if _ended_well(facts):
        return
    for rank, quotes in facts.last:
        for quote in quotes:
            signature = signature_of(quote.text, suspected=True)
            source = quote.text.startswith(SOURCE)
            if signature is not None and not source and signature.level is Level.ROOT:
                event = Event(signature, [quote], quote.text, quote.line, quote.file, rank)
                yield verdict(event, facts, None, sure=False)


def reported(facts: Facts) -> Iterator[Finding]:
    """A launcher tells that the job failed, and nobody tells why."""
    events = [e for e in facts.events if e.level is Level.REPORT and not e.warning and not e.survived]
    if not events:
        return
    event = max(events, key=lambda event: event.signature is CUT_OFF)
    what = f"{event.signature.what}, and the log does not say why the job failed"
    yield _unknown(what, event.quotes, facts, event.signature.cause, event.signature.fix)


def _unknown(
    what: str, quotes: Sequence[Quote], facts: Facts, why: str, fix: str, rank: int | None = None
) -> Explanation:
    return Explanation(
        "unknown", Severity.ERROR, f"unknown: {what}", place=f"{quotes[-1].file}:{quotes[-1].line}" if quotes else "",
        why=why, fix=fix, confidence=Confidence.LIKELY, rank=rank, quotes=tuple(quotes), cascade=tuple(facts.notes),
    )  # fmt: skip


def error_line(facts: Facts) -> Iterator[Finding]:
    """No known failure, but the log ends with lines that look like an error."""
    if not facts.suspects:
        return
    event = facts.suspects[0]
    what = f"no known failure is in the logs; the first error is: {shortened(event.said)}"
    yield _unknown(what, event.quotes, facts, ERROR_LINE.cause, "read the lines around it", event.rank)


def known_failure(facts: Facts) -> Iterator[Finding]:
    """The run directory says that the run failed, and the logs do not show why."""
    if not facts.failed:
        return
    quotes = last_words(facts, facts.failed_rank)
    why = "the quoted lines are the last that were printed" if quotes else "nothing was printed"
    fix = "`rankup status RUN` tells what the scheduler says"
    yield _unknown("the run failed, and its logs show no error", quotes, facts, why, fix, facts.failed_rank)


JUDGES: dict[str, Callable[[Facts], Iterator[Finding]]] = {
    "own-error": own_error,
    "waited": waited,
    "left-early": left_early,
    "exit-code": exit_code,
    "consequences": consequences,
    "ended-from-outside": ended_from_outside,
    "error-line": error_line,
    "warned": warned,
    "last-said": last_said,
    "reported": reported,
    "known-failure": known_failure,
}


def last_words(facts: Facts, rank: int | None) -> list[Quote]:
    """The last ordinary lines of a rank's own file, else of the first file that has any."""
    own = [quotes for of, quotes in facts.last if of == rank and quotes]
    return next(iter(own or [quotes for of, quotes in facts.last if of is None and quotes]), [])
