"""State that no snapshot holds, judged by what an uninterrupted training and the resumed ones show of it."""

from __future__ import annotations

from collections.abc import Sequence

from rankup.verify.first_difference import UNTRACKED
from rankup.verify.trace_reader import AttemptTrace, Record


def never_restored(
    reference: AttemptTrace, attempts: Sequence[AttemptTrace], ignore: frozenset[str] = frozenset()
) -> list[str]:
    """What changes during ``reference``, is not registered, and was not seen to come back after a resume of one of
    ``attempts``. What did come back is saved by something else, or follows from what is saved."""
    return [
        name
        for name in changing(reference)
        if UNTRACKED + name not in ignore
        and not any(_came_back(name, reference, attempt) for attempt in attempts)
    ]


def changing(reference: AttemptTrace) -> list[str]:
    """Names of what has not the same state from its first record to its last."""
    values: dict[str, set[str]] = {}
    for record in _records(reference):
        for name, value in record["untracked"].items():
            values.setdefault(name, set()).add(value)
    return [name for name, seen in values.items() if len(seen) > 1]


def renewed(reference: AttemptTrace) -> list[str]:
    """What has the same state at the beginning of every epoch, of two or more: a mean that is reset. A resume in the
    middle of an epoch shortens it, and leaves the training alone."""
    if len(reference.epochs) < 2:
        return []
    first, *others = (record["untracked"] for record in reference.epochs)
    return [
        name
        for name in changing(reference)
        if name in first and all(other.get(name) == first[name] for other in others)
    ]


def _came_back(name: str, reference: AttemptTrace, attempt: AttemptTrace) -> bool:
    """Whether it had changed when the attempt went on, and is as the reference has it one step later."""
    before = reference.steps.get(attempt.resumed_at, {}).get(0)
    mine = reference.steps.get(attempt.resumed_at + 1, {}).get(0)
    theirs = attempt.steps.get(attempt.resumed_at + 1, {}).get(0)
    if before is None or mine is None or theirs is None or 0 not in reference.begin:
        return False
    moved = before["untracked"].get(name) != reference.begin[0]["untracked"].get(name)
    return moved and name in theirs["untracked"] and theirs["untracked"][name] == mine["untracked"].get(name)


def _records(attempt: AttemptTrace) -> list[Record]:
    steps = [attempt.steps[step][0] for step in sorted(attempt.steps) if 0 in attempt.steps[step]]
    return [attempt.begin[0], *steps, *(ends[0] for ends in (attempt.end, attempt.exit) if 0 in ends)]
