"""What the traces of an uninterrupted and an interrupted training show: the evidence for ``causes``, and state that no
snapshot holds."""

from __future__ import annotations

from collections.abc import Sequence

from rankup.verify.first_difference import LOSS, UNTRACKED, Difference
from rankup.verify.trace_reader import AttemptTrace, Record

_SUSPECTS = 5
# Sums in another order differ by less than this, relative to all weights; a lost state differs by more.
LAST_DIGITS = 1e-6
# From this number of ranks on, the order of a sum can depend on the position of an element in a buffer.
RANKS_OF_A_RING = 3


def same_in_each_epoch(attempt: AttemptTrace) -> bool:
    """Whether two epochs have the same samples, over all ranks; False with one epoch."""
    rows: dict[int, set[str]] = {}
    for ranks in attempt.steps.values():
        for record in ranks.values():
            for epoch, step in record["at"][-1:]:
                rows.setdefault(epoch if step else epoch - 1, set()).update(record["rows"])
    full = sorted(rows.values(), key=len)[-2:]
    return len(full) == 2 and bool(full[0]) and full[0] <= full[1]


def all_rows(attempt: AttemptTrace) -> set[str]:
    return {row for ranks in attempt.steps.values() for record in ranks.values() for row in record["rows"]}


def weights_restored(reference: AttemptTrace, attempt: AttemptTrace) -> int:
    """The number of tensors of the model if the resume restored all of them; 0 if one differs."""
    pair = _at_resume(reference, attempt)
    if pair is None:
        return 0
    before, after = ({n: h for n, h in record["state"].items() if "model/" in n} for record in pair)
    return len(before) if before == after else 0


def not_restored(reference: AttemptTrace, attempt: AttemptTrace) -> list[str]:
    """Names of unregistered state that differed from the reference at the resume; of a module and its parts, the
    module's."""
    pair = _at_resume(reference, attempt)
    if pair is None:
        return []
    before, after = pair
    lost = {
        name.partition(" ")[2]: name
        for name, was in before["untracked"].items()
        if after["untracked"].get(name, was) != was
    }
    whole = tuple(f"{path}{sign}" for path in lost for sign in ".[")
    return [name for path, name in lost.items() if not path.startswith(whole)]


def saved_but_other(reference: AttemptTrace, attempt: AttemptTrace) -> list[str]:
    """Names of state that a snapshot holds and that differed from the reference at the resume. The code after an epoch
    may set metrics again."""
    pair = _at_resume(reference, attempt)
    if pair is None:
        return []
    before, after = (record["state"] for record in pair)
    return [name for name, was in before.items() if after.get(name) != was]


def gradients_pending(reference: AttemptTrace, attempt: AttemptTrace) -> int:
    """The step of the snapshot, if gradients remained after it and it changed no weight; else 0."""
    at = reference.steps.get(attempt.resumed_at, {}).get(0)
    before = reference.steps.get(attempt.resumed_at - 1, {}).get(0)
    if at is None or before is None or not at.get("pending"):
        return 0
    now, then = ({n: h for n, h in record["state"].items() if "model/" in n} for record in (at, before))
    return attempt.resumed_at if now == then else 0


def last_digits_only(reference: AttemptTrace, attempt: AttemptTrace, difference: Difference) -> bool:
    """Whether the difference is that of another order of summation, in the first step after a resume."""
    if reference.world_size < RANKS_OF_A_RING or difference.step != attempt.resumed_at + 1:
        return False
    if difference.first == LOSS or difference.at_end or saved_but_other(reference, attempt):
        return False
    mine, theirs = (
        float(each.steps[difference.step][difference.rank].get("size", 0.0)) for each in (reference, attempt)
    )
    return abs(mine - theirs) <= LAST_DIGITS * max(abs(mine), abs(theirs)) and mine > 0


def suspects(reference: AttemptTrace, attempt: AttemptTrace, again: AttemptTrace | None) -> str:
    """A clause that names plain variables of the script that differed at the resume; "" if there are none. Variables
    that differ between two uninterrupted trainings, such as a clock, are left out."""
    pair = _at_resume(reference, attempt)
    if pair is None:
        return ""
    before, after = (record.get("variables", {}) for record in pair)
    twin = again.steps.get(attempt.resumed_at, {}).get(0, {}).get("variables", {}) if again else before
    names = [
        name for name, was in before.items() if after.get(name, was) != was and twin.get(name, was) == was
    ]
    if not names:
        return ""
    listed = ", ".join(names[:_SUSPECTS])
    return f"; plain variables that start again after a resume: {listed}"


def _at_resume(reference: AttemptTrace, attempt: AttemptTrace) -> tuple[Record, Record] | None:
    before = reference.steps.get(attempt.resumed_at, {}).get(0)
    return (before, attempt.begin[0]) if before is not None else None


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
    """Names of state that changes between the first record of a loop and its last. What is another thing in the next
    loop, as the data of another round, the code between the two has made: a resume runs that again."""
    values: dict[tuple[int, str], set[str]] = {}
    for loop, record in _records(reference):
        for name, value in record["untracked"].items():
            values.setdefault((loop, name), set()).add(value)
    return list(dict.fromkeys(name for (_, name), seen in values.items() if len(seen) > 1))


def born_later(reference: AttemptTrace) -> frozenset[str]:
    """Names of state that the script made after its loop began, such as the last batch of an evaluation. They hold what
    the steps made of the state that is compared."""
    first = reference.begin.get(0, {}).get("untracked", {})
    return frozenset(
        UNTRACKED + name
        for _, record in _records(reference)
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
    """Whether the state had changed before a loop was resumed, and equals that of the reference one step later."""
    return any(_came_back_at(at, name, reference, attempt) for at in {attempt.resumed_at, *attempt.starts})


def _came_back_at(at: int, name: str, reference: AttemptTrace, attempt: AttemptTrace) -> bool:
    before = reference.steps.get(at, {}).get(0)
    mine = reference.steps.get(at + 1, {}).get(0)
    theirs = attempt.steps.get(at + 1, {}).get(0)
    if before is None or mine is None or theirs is None or 0 not in reference.begin:
        return False
    begun = reference.starts.get(_loop_of(reference, at), reference.begin[0])
    moved = before["untracked"].get(name) != begun["untracked"].get(name)
    return moved and name in theirs["untracked"] and theirs["untracked"][name] == mine["untracked"].get(name)


def _records(attempt: AttemptTrace) -> list[tuple[int, Record]]:
    """Each with the step after which its loop began."""
    steps = [attempt.steps[step][0] for step in sorted(attempt.steps) if 0 in attempt.steps[step]]
    others = [*steps, *(ends[0] for ends in (attempt.end, attempt.exit) if 0 in ends)]
    starts = attempt.starts or {attempt.resumed_at: attempt.begin[0]}
    return [*starts.items(), *((_loop_of(attempt, record["step"]), record) for record in others)]


def _loop_of(attempt: AttemptTrace, step: int) -> int:
    return max((start for start in attempt.starts if start < step), default=attempt.resumed_at)
