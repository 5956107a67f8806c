"""The cause in words: who failed, of what, what follows from it and what to do."""

from __future__ import annotations

from dataclasses import replace

from rankup.explain.cascade import cascade_of
from rankup.explain.choose import ordered
from rankup.explain.events import Ending, Event, Facts
from rankup.explain.explanation import Explanation
from rankup.explain.signatures.signature import EXIT_CODE, PYTHON_EXCEPTION
from rankup.explain.watchdog import behind, ranks_text
from rankup.findings.finding import Confidence, Severity

_TERMINATED = ("exit code -15", "exit code 143")
_LONGEST = 200  # characters of a message in the first line


def watchdog_verdict(event: Event, facts: Facts) -> Explanation:
    late, shown = behind(facts.watchdog, facts.ranks)
    found = verdict(event, facts, None, sure=True, waited=True)
    if not late:
        return replace(found, message="all ranks that report it waited in a collective until the timeout", rank=None,
                       why=shown or found.why, confidence=Confidence.LIKELY)  # fmt: skip
    verb = "is" if len(late) == 1 else "are"
    own = tuple(s.quote for s in facts.watchdog if s.rank == late[0])[:1]
    return replace(
        found, confidence=found.confidence if own else Confidence.LIKELY,  # without a word it may only lack in this log
        message=f"{ranks_text(late)} {verb} behind: the other ranks waited in a collective until the timeout",
        rank=late[0] if len(late) == 1 else None, why=f"{shown}; {found.why}", quotes=(*found.quotes[:1], *own),
    )  # fmt: skip


def timeout_verdict(event: Event, facts: Facts) -> Explanation:
    """Ranks waited until gloo's timeout: those that wrote nothing are the ones that they waited for."""
    found = verdict(event, facts, None, sure=True, waited=True)
    waiting = {e.rank for e in facts.events if e.signature is event.signature and e.rank is not None}
    silent = facts.ranks - {e.rank for e in facts.events if e.rank is not None}
    if not waiting or not silent or len(silent) > len(facts.ranks) // 2:
        return found
    who = ranks_text(silent)
    return replace(
        found, message=f"{who} did not come to a collective: {ranks_text(waiting)} waited until the timeout",
        rank=min(silent) if len(silent) == 1 else None, host="", confidence=Confidence.LIKELY,
        fix=f"look what {who} did last; {found.fix}",
    )  # fmt: skip


def barrier_verdict(event: Event, facts: Facts) -> Explanation:
    matched = event.signature.regex.search(event.said)
    numbers = [int(word) for word in matched[1].replace(",", " ").split()] if matched else []
    found = verdict(event, facts, None, sure=True, waited=True)
    if not numbers:
        return found
    rank = numbers[0] if len(numbers) == 1 else None
    return replace(found, message=f"{ranks_text(numbers)} did not come to a barrier in time", rank=rank)


def verdict(
    event: Event, facts: Facts, cause: Ending | None, *, sure: bool, waited: bool = False
) -> Explanation:
    signature = event.signature
    rank, host = event.rank, event.host
    if rank is None and cause is not None and _may_be(event, cause):
        rank, host = cause.exit.rank, cause.host
    if (
        rank is None and signature.exits
    ):  # another line may name the rank: srun's, of a kill that slurmstepd reports
        named = [
            e for e in facts.events if e.signature is signature and e.rank is not None and not e.traceback
        ]
        if len({e.rank for e in named}) == 1:
            rank, host = named[0].rank, named[0].host
            event = replace(event, quotes=[*event.quotes, *named[0].quotes])
    if rank is not None and not host:
        host = next((ending.host for ending in facts.endings if ending.exit.rank == rank), "")
    same = set() if waited else _same(event, facts)
    if signature.of_all:
        rank, host = None, ""
    if same:
        rank, host = None, ""
        first_of = [
            e for e in facts.events if e.signature is signature and e.kind == event.kind and e.rank in same
        ]
        event = min(first_of, key=ordered(first_of)) if first_of else event
    confidence = Confidence.LIKELY if signature.likely or not sure else Confidence.SURE
    return Explanation(
        signature.name, Severity.ERROR, _message(event, facts, rank, host, same, waited=waited),
        place=place_of(event), why=signature.cause, fix=signature.fix, confidence=confidence,
        rank=rank, host=host, quotes=tuple(event.quotes), rules=signature.rules,
        cascade=tuple(cascade_of(event, facts, rank, same)),
    )  # fmt: skip


def _may_be(event: Event, cause: Ending) -> bool:
    """Whether an event without a rank is that of the rank that failed first. srun's exits come in no order."""
    if not cause.root or event.file != cause.quotes[0].file:
        return False
    if event.signature.exits and cause.exit.code < 0:
        return cause.exit.code in event.signature.exits
    return event.traceback or event.signature.name in (
        "python-syntax-error",
        "script-missing",
        "wrong-arguments",
    )


def _message(event: Event, facts: Facts, rank: int | None, host: str, same: set[int], *, waited: bool) -> str:
    signature = event.signature
    what = shortened(event.said) if signature.name == PYTHON_EXCEPTION.name else signature.what
    if signature is EXIT_CODE:
        what = f"unknown: {{}}, with {event.said}, and wrote no error that is known"
        if len(same) > 1:
            return what.format(f"{ranks_text(same)} failed")
        return what.format(f"rank {rank} failed first" if rank is not None else "the job failed")
    if len(same) > 1:
        return f"all {len(same)} ranks failed in the same way: {what}"
    if rank is None:
        return what if what.startswith("the job ") else f"the job failed: {what}"
    on = f" on {host}" if host else ""
    return f"rank {rank}{on} {'failed' if waited or len(facts.ranks) < 2 else 'failed first'}: {what}"


def _same(event: Event, facts: Facts) -> set[int]:
    """All ranks, if each of them has this failure; else none."""
    if event.signature is EXIT_CODE:
        codes = {ending.exit.rank: ending.exit.code for ending in facts.endings}
        same = {rank for rank, code in codes.items() if f"exit code {code}" == event.said}
        if event.said in _TERMINATED and any(ending.root for ending in facts.endings):
            return set()  # the launcher itself ends the others so
        return same if same == set(codes) else set()
    alike = {
        e.rank
        for e in facts.events
        if e.rank is not None and e.signature is event.signature and e.kind == event.kind
    }
    return {rank for rank in alike if rank is not None} if len(alike) > 1 and alike == facts.ranks else set()


def place_of(event: Event) -> str:
    quote = event.quotes[-1] if event.quotes else None
    return f"{quote.file}:{quote.line}" if quote else event.file


def shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " …"
