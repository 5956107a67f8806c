"""Where a run is interrupted, and where it saves: at random, from a seed, and so that everything is crossed.

The uninterrupted training shows what can be crossed: its steps, its epochs, its evaluations. An interruption is written
as a value of RANKUP_INTERRUPT (``runtime/tracing/fault_injection.py``). What it has crossed is read from the traces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from rankup.verify.trace_reader import AttemptTrace

# The kinds that find most come first: with few kills only these are used.
KINDS = ("step", "behind", "evaluation", "save", "moment", "exit")
QUICK_KINDS = ("step", "behind", "exit")
# At most as many changes on disk as the shortest save makes, so that the kill falls into the chosen save.
CHANGES_PER_SAVE = 12
_MOST_SAVES = 3


@dataclass(frozen=True)
class Course:
    """What an uninterrupted training consists of. ``epoch_ends``: the steps after which the code after an epoch ran.
    ``evaluations``: (after which step, how many batches). ``later``: the steps of all epochs except the first of each
    training."""

    steps: int
    epoch_ends: tuple[int, ...] = ()
    evaluations: tuple[tuple[int, int], ...] = ()
    later: frozenset[int] = frozenset()
    processes: int = 1
    step_s: float = 0.0
    wanted: tuple[str, ...] = KINDS  # the kinds of kill that are asked for

    @classmethod
    def of(cls, reference: AttemptTrace, wanted: tuple[str, ...] = KINDS) -> Course:
        behind = [(int(record["step"]), int(record["evaluated"])) for record in reference.behind]
        within = [(step - 1, int(ranks[0].get("evaluated", 0))) for step, ranks in reference.steps.items()]
        times = [ranks[0]["time"] for ranks in reference.steps.values() if 0 in ranks]
        return cls(
            reference.final_step,
            tuple(step for step, _ in behind),
            tuple(sorted((step, count) for step, count in behind + within if count)),
            frozenset(
                step
                for step, ranks in reference.steps.items()
                if any(epoch for epoch, _ in ranks[0].get("at", ()))
            ),
            reference.world_size,
            float(max(times) - min(times)) / max(1, len(times) - 1) if times else 0.0,
            wanted,
        )

    @property
    def late(self) -> list[int]:
        """The steps after which a kill can follow a save in the same epoch, if that epoch is not the first one."""
        return [step for step in range(2, self.steps) if {step - 1, step} <= self.later]

    def kinds(self) -> list[str]:
        """The kinds of kill that are possible in this training."""
        missing = {"behind"} if not self.epoch_ends else set()
        missing |= {"evaluation"} if not self.evaluations else set()
        return [kind for kind in self.wanted if kind not in missing] if self.steps > 1 else []


@dataclass(frozen=True)
class Kill:
    """``interrupt``: the value of RANKUP_INTERRUPT. ``text``: the same for people. ``saves``: the steps after which the
    attempt saves."""

    kind: str
    step: int
    interrupt: str
    text: str
    saves: tuple[int, ...] = field(default=())


def choose_kills(random: Random, course: Course, kills: int) -> list[Kill]:
    """In the order of their steps, so that each attempt reaches its kill. The first kill of kind ``step`` is in the
    second epoch or a later one, if there is one, so that a resume begins there."""
    kinds: list[str] = course.kinds()[:kills]
    while len(kinds) < kills and course.steps > 1:
        kinds += random.sample(course.kinds(), min(kills - len(kinds), len(course.kinds())))
    chosen: list[tuple[int, int, str]] = []
    for number, kind in enumerate(kinds):
        late = number == 0
        chosen.append((_target(random, kind, course, late=late), number, kind))
    made: list[Kill] = []
    saved = 0
    for step, number, kind in sorted(chosen):
        saves = _saves(random, kind, saved, step, course, late=number == 0)
        made.append(_kill(random, kind, step, saves, course))
        if saves and kind != "save":
            saved = max(saves)
    return made


def last_saves(random: Random, course: Course, kills: Sequence[Kill]) -> tuple[int, ...]:
    """The saves of the attempt that trains to the end."""
    saved = max((step for kill in kills for step in kill.saves), default=0)
    return _some(random, list(range(saved + 1, course.steps)))


def choose_stops(random: Random, steps: int, worlds: int) -> list[int]:
    """The steps after which all numbers of processes except the last stop: increasing, each before the last step."""
    return sorted(random.sample(range(1, steps), worlds - 1))


def _target(random: Random, kind: str, course: Course, *, late: bool) -> int:
    last = course.steps - 1
    if kind == "exit":
        return course.steps
    if kind == "behind":
        # Avoid the last epoch if possible: training that continues afterwards shows more.
        return random.choice([step for step in course.epoch_ends if step < course.steps] or course.epoch_ends)
    if kind == "evaluation":
        steps = [step for step, _ in course.evaluations]
        return random.choice([step for step in steps if 0 < step < course.steps] or steps)
    if late and course.late:
        return random.choice(course.late)
    if kind == "moment":
        last = max(1, last - 1)  # the training must not end before the moment of the kill
    return random.randint(min(2, last), last)


def _saves(
    random: Random, kind: str, saved: int, step: int, course: Course, *, late: bool
) -> tuple[int, ...]:
    """Steps after ``saved`` at which an attempt saves that is killed about ``step``. Only the kinds that need it save
    at ``step`` itself; for the others the kill must not fall on a save."""
    if kind == "save":
        return (step,)
    before = _some(
        random, [at for at in range(saved + 1, step) if not late or at in course.later or not course.late]
    )
    return (*before, step) if kind == "behind" and step > saved else before


def _some(random: Random, steps: list[int]) -> tuple[int, ...]:
    return tuple(sorted(random.sample(steps, min(len(steps), random.randint(1, _MOST_SAVES)))))


def _kill(random: Random, kind: str, step: int, saves: tuple[int, ...], course: Course) -> Kill:
    rank = random.randrange(course.processes)
    if kind == "save":
        change = random.randint(1, CHANGES_PER_SAVE)
        text = f"before change {change} on disk of the save after step {step}"
        return Kill(kind, step, f"save {change} 0", text, saves)
    if kind == "behind":
        text = f"in the code after the epoch that ends with step {step}"
        return Kill(kind, step, f"behind {step} {rank}", text, saves)
    if kind == "exit":
        return Kill(kind, step, f"exit {step} {rank}", "after the last line of the script", saves)
    if kind == "evaluation":
        batch = random.randint(1, max(count for at, count in course.evaluations if at == step))
        text = f"after batch {batch} of the evaluation after step {step}"
        return Kill(kind, step, f"evaluation {step} {rank} {batch}", text, saves)
    if kind == "moment":
        seconds = random.uniform(0, course.step_s)
        text = f"{seconds * 1000:.0f} ms after step {step}"
        return Kill(kind, step, f"moment {step} {rank} {seconds:.4f}", text, saves)
    return Kill(kind, step, f"step {step} {rank}", f"after step {step}", saves)


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
