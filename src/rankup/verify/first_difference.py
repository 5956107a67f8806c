"""Compares two trainings step by step, by hashes: the first difference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from rankup.verify.trace_reader import AttemptTrace, Record

# The inputs of a step, then its results: the first of these that differs tells most about the cause.
INPUTS, LOSS, UNTRACKED, RANDOM = "the batch", "the loss", "untracked/", "the generators"
# State that is not trained, and may hold a clock.
ASIDE = ("registered/", "metrics/", UNTRACKED)


@dataclass(frozen=True)
class Difference:
    """The first step that differs, and all names that differ then, in the order of ``INPUTS``, ``LOSS``, the state's.

    ``attempt`` counts from 1 within its scenario. ``resumed_at`` is the step of its resume, 0 for none. ``at_end``: all
    steps are equal, but the state after the code that follows them is not.
    """

    attempt: int
    resumed_at: int
    step: int
    rank: int
    names: tuple[str, ...]
    at_end: bool = False
    epochs: tuple[tuple[int, int], ...] = field(default=())  # (epoch, step in it) per feed, both from 0

    @property
    def first(self) -> str:
        return self.names[0]

    @property
    def inputs_differ(self) -> bool:
        return self.first == INPUTS


def first_difference(
    reference: AttemptTrace, attempts: Sequence[AttemptTrace], *, ignore: frozenset[str] = frozenset()
) -> Difference | None:
    """The first difference in a step that the reference has trained too; None if all are equal, bit for bit."""
    for number, attempt in enumerate(attempts, start=1):
        for step, rank, mine, theirs in pairs(reference, attempt):
            if names := [name for name in differing(mine, theirs) if name not in ignore]:
                at = tuple((epoch, inner) for epoch, inner in theirs["at"])
                return Difference(
                    number, attempt.resumed_at, step, rank, tuple(names), at_end=False, epochs=at
                )
        for mine, theirs, rank in _ends(reference, attempt):
            if mine["step"] != theirs["step"]:
                continue  # ``other_end`` reports this
            names = [name for name in differing(mine, theirs) if name not in ignore]
            if not attempt.steps:  # state that no snapshot holds follows from the steps, and it trained none
                names = [name for name in names if not name.startswith(UNTRACKED)]
            if names:
                return Difference(number, attempt.resumed_at, theirs["step"], rank, tuple(names), at_end=True)
    return None


def other_end(reference: AttemptTrace, attempts: Sequence[AttemptTrace]) -> tuple[int, int] | None:
    """(the number of an attempt, the step that it reached) if one trains beyond the reference's last step, or the last
    one ends at another step."""
    for number, attempt in enumerate(attempts, start=1):
        last = number == len(attempts) and attempt.exit
        if attempt.final_step > reference.final_step or (last and attempt.final_step != reference.final_step):
            return number, attempt.final_step
    return None


def _ends(reference: AttemptTrace, attempt: AttemptTrace) -> Iterator[tuple[Record, Record, int]]:
    for mine, theirs in ((reference.end, attempt.end), (reference.exit, attempt.exit)):
        for rank in sorted(mine.keys() & theirs.keys()):
            yield mine[rank], theirs[rank], rank


def over_ranks(attempt: AttemptTrace) -> AttemptTrace:
    """The part of an any-world trace that does not depend on the number of ranks: the losses in the shards' order, and
    the state, which is the same on all ranks."""
    steps = {
        step: {0: _over_ranks(ranks)}
        for step, ranks in attempt.steps.items()
        if len(ranks) == attempt.world_size
    }
    end, exit_ = ({0: _over_ranks(ends)} if 0 in ends else {} for ends in (attempt.end, attempt.exit))
    return replace(attempt, steps=steps, end=end, exit=exit_)


def _over_ranks(ranks: dict[int, Record]) -> Record:
    state = {name: value for name, value in ranks[0]["state"].items() if not name.startswith(ASIDE)}
    losses = [loss for rank in sorted(ranks) for loss in ranks[rank].get("loss", ())]
    return {
        **ranks[0],
        "batch": "",
        "rows": [],
        "loss": losses,
        "state": state,
        "untracked": {},
        "random": "",
    }


def unsteady(reference: AttemptTrace, again: AttemptTrace) -> frozenset[str]:
    """Names of state that is not trained and differs between two uninterrupted trainings, such as a clock. It proves
    nothing: if the training depended on it, weights would differ as well."""
    both = [(mine, theirs) for _, _, mine, theirs in pairs(reference, again)]
    both += [(mine, theirs) for mine, theirs, _ in _ends(reference, again)]
    names = {name for mine, theirs in both for name in differing(mine, theirs)}
    return frozenset(name for name in names if name.startswith(ASIDE))


def not_finite_from(attempt: AttemptTrace) -> int | None:
    """The first step after which the weights are NaN or infinite; from there on any two trainings are equal."""
    for step in sorted(attempt.steps):
        sizes = [ranks.get("size", 0.0) for ranks in attempt.steps[step].values()]
        if not all(map(math.isfinite, sizes)):
            return step
    return None


def pairs(reference: AttemptTrace, attempt: AttemptTrace) -> Iterator[tuple[int, int, Record, Record]]:
    """(step, rank, the reference's record, the attempt's), in order."""
    for step in sorted(reference.steps.keys() & attempt.steps.keys()):
        mine, theirs = reference.steps[step], attempt.steps[step]
        for rank in sorted(mine.keys() & theirs.keys()):
            yield step, rank, mine[rank], theirs[rank]


def compared(reference: AttemptTrace, attempts: Sequence[AttemptTrace]) -> int:
    """How many steps were compared. A step that was trained again after a kill counts again."""
    return sum(len({step for step, *_ in pairs(reference, attempt)}) for attempt in attempts)


def differing(mine: Record, theirs: Record) -> list[str]:
    """The names that differ between two records of one step."""
    names = [INPUTS] if mine.get("batch") != theirs.get("batch") else []
    names += [LOSS] if mine.get("loss") != theirs.get("loss") else []
    names += _keys(mine["state"], theirs["state"])
    names += [UNTRACKED + name for name in _keys(mine["untracked"], theirs["untracked"])]
    return names + ([RANDOM] if mine.get("random") != theirs.get("random") else [])


def _keys(mine: dict[str, str], theirs: dict[str, str]) -> list[str]:
    both = [*mine, *(name for name in theirs if name not in mine)]
    return [name for name in both if mine.get(name) != theirs.get(name)]


def same_samples(reference: AttemptTrace, attempt: AttemptTrace) -> bool:
    """Whether each step saw the same samples over all ranks, on any number of ranks. Steps without known samples are
    skipped."""
    for step in reference.steps.keys() & attempt.steps.keys():
        mine, theirs = (_samples(each.steps[step]) for each in (reference, attempt))
        if mine and theirs and mine != theirs:
            return False
    return True


def _samples(ranks: dict[int, Record]) -> list[str]:
    return [row for rank in sorted(ranks) for row in ranks[rank]["rows"]]
