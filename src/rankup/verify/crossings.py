"""What the interruptions of a training crossed and did not cross, read from its traces."""

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
    "exit": "a resume of a training that was done",
    "end": "the end of the script",
}


def offered(course: Course) -> list[str]:
    """What can be crossed in this training."""
    kinds = course.kinds()
    names = {"epoch": bool(course.late), "off-grid": course.steps > 1, "end": True}
    return [name for name in WORDS if names.get(name, name in kinds)]


def crossed(attempts: Sequence[AttemptTrace], *, to_the_end: bool) -> list[str]:
    """``attempts``: those of one training, in order. ``to_the_end``: the plan has no earlier end."""
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
    """What only a longer training would show; "" if nothing."""
    if not course.later:
        return (
            "this training has one epoch, so it does not show whether a later epoch resumes correctly (schedules, code "
            "after an epoch)"
        )
    return "" if course.late else "this training is too short for a resume in its second epoch"
