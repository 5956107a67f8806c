"""State that no snapshot holds, found in the traces of an uninterrupted training and the resumed ones."""

from __future__ import annotations

from collections.abc import Sequence

from rankup.verify.first_difference import UNTRACKED
from rankup.verify.trace_reader import AttemptTrace, Record


def never_restored(
    reference: AttemptTrace, attempts: Sequence[AttemptTrace], ignore: frozenset[str] = frozenset()
) -> list[str]:
    """Names of state that changes during ``reference``, is not registered, and that no resume of ``attempts`` restored.
    State that was restored is saved by something else, or derived from saved state."""
    return [
        name
        for name in changing(reference)
        if UNTRACKED + name not in ignore
        and not any(_came_back(name, reference, attempt) for attempt in attempts)
    ]


def changing(reference: AttemptTrace) -> list[str]:
    """Names of state that changes between the first record and the last."""
    values: dict[str, set[str]] = {}
    for record in _records(reference):
        for name, value in record["untracked"].items():
            values.setdefault(name, set()).add(value)
    return [name for name, seen in values.items() if len(seen) > 1]


def born_later(reference: AttemptTrace) -> frozenset[str]:
    """Names of state that the script made after its loop began, such as the last batch of an evaluation. They hold what
    the steps made of the state that is compared."""
    first = reference.begin.get(0, {}).get("untracked", {})
    return frozenset(
        UNTRACKED + name
        for record in _records(reference)
        for name in record["untracked"]
        if name not in first
    )


def renewed(reference: AttemptTrace) -> list[str]:
    """Names of state that is the same at the beginning of every epoch (of two or more), such as a mean that is reset. A
    resume in the middle of an epoch changes it, but not the training."""
    if len(reference.epochs) < 2:
        return []
    first, *others = (record["untracked"] for record in reference.epochs)
    return [
        name
        for name in changing(reference)
        if name in first and all(other.get(name) == first[name] for other in others)
    ]


def _came_back(name: str, reference: AttemptTrace, attempt: AttemptTrace) -> bool:
    """Whether the state had changed before the resume, and equals that of the reference one step later."""
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
