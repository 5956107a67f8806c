"""What the interruptions of a training crossed, read from its traces, and what they did not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rankup.verify.plan import Course
from rankup.verify.trace_reader import AttemptTrace

WORDS = {
    "epoch": "a resume in the second epoch or a later one",
    "off-grid": "a kill at a step that was not saved",
    "behind": "a kill in the code after an epoch",
    "evaluation": "a kill in an evaluation",
    "save": "a kill while a snapshot was being written",
    "moment": "a kill within a step",
    "end": "the end of the script",
}


def offered(course: Course) -> list[str]:
    """What there is to cross in this training."""
    kinds = course.kinds()
    names = {"epoch": bool(course.late), "off-grid": course.steps > 1, "end": True}
    return [name for name in WORDS if names.get(name, name in kinds)]


def crossed(attempts: Sequence[AttemptTrace], *, to_the_end: bool) -> list[str]:
    """``attempts`` are those of one training, in order; ``to_the_end``: no stop was asked for before."""
    found = {attempt.frozen for attempt in attempts} - {"step"}
    if any(attempt.resumed_at and attempt.resumed_epoch for attempt in attempts):
        found.add("epoch")
    for attempt, following in pairwise(attempts):
        if attempt.frozen == "step" and 0 < following.resumed_at < attempt.last:
            found.add("off-grid")
    if to_the_end and attempts and attempts[-1].ended:
        found.add("end")
    return [name for name in WORDS if name in found]


def too_short(course: Course) -> str:
    """What a longer training would have shown besides; "" if nothing."""
    if not course.later:
        return (
            "this training has one epoch: whether a later epoch goes on as it should (schedules, code after an epoch) "
            "is not shown"
        )
    return "" if course.late else "this training is too short for a resume in its second epoch"
