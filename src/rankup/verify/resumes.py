"""One interruption of any script and the attempt that followed it: where it went on, and which samples that cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rankup.verify.interruptions import Interruption
from rankup.verify.trace_reader import AttemptTrace

_RANGES = 4  # that are shown of a list of samples

Samples = Counter[Any]


@dataclass(frozen=True)
class Resume:
    """``how``: what the process did after a signal. ``saved_at``: the last step before it after which the script
    saves."""

    interruption: Interruption
    killed_at: int
    how: str
    saved_at: int | None
    attempt: AttemptTrace

    @property
    def begins_again(self) -> bool:
        return self.attempt.resumed_at == 0 and self.attempt.restored != "nothing"

    @property
    def again(self) -> int | None:
        """How many steps were trained again; None if it went on with the weights of no step."""
        if self.attempt.restored == "nothing":
            return None
        return self.killed_at - self.attempt.resumed_at

    @property
    def position(self) -> str:
        """In words: where it went on, and what that cost."""
        where = self.interruption.at(self.killed_at) + (f" ({self.how})" if self.how else "")
        again, at = self.again, self.attempt.resumed_at
        if again is None:
            return f"{where}: went on with weights of no step before it"
        cost = f"trained {again} step{'s' * (again != 1)} again" if again else "trained no step twice"
        return f"{where}, went on after step {at}: {cost}"


def epoch_of(trace: AttemptTrace, step: int) -> int | None:
    """From 1, by the passes of the loader that a step of rank 0 drew from; None if that is not known."""
    numbers = (ranks[0].get("epoch", 0) for _, ranks in sorted(trace.steps.items()) if 0 in ranks)
    passes = dict.fromkeys(number for number in numbers if number)
    at = trace.steps.get(step, {}).get(0, {}).get("epoch", 0)
    return [*passes].index(at) + 1 if at else None


def samples_of_resume(first: AttemptTrace, resume: Resume) -> str:
    """Which samples of its epoch a resume has trained twice, and which never, in words; "" if none.

    Compared with the uninterrupted training: what both have trained twice, such as the padding of a sampler, is none.
    """
    attempt = resume.attempt
    at = attempt.resumed_at if resume.again is not None else resume.saved_at or resume.killed_at
    epoch = epoch_of(first, at + 1)
    steps = [step for step in sorted(first.steps) if epoch is not None and epoch_of(first, step) == epoch]
    mine = sorted(attempt.steps)
    if not steps or not mine:
        return ""
    pass_ = _pass(attempt, mine[0])
    same_pass = [step for step in mine if _pass(attempt, step) == pass_]
    whole = same_pass[-1] != mine[-1] or bool(attempt.exit)
    before = _samples(first, (step for step in steps if step <= at))
    wanted = before + _samples(first, (step for step in steps if step > at))
    given = before + _samples(attempt, same_pass)
    # Killed in this epoch: what it would have trained later is not known.
    twice, never = given - wanted, wanted - given if whole else Counter()
    known = wanted.keys() | given.keys()
    if not (twice or never) or not all(isinstance(sample, int) for sample in known):
        return ""
    parts = [f"{_ranges(found)} {word}" for found, word in ((twice, "twice"), (never, "never")) if found]
    return f"samples of epoch {epoch}: {', '.join(parts)}"


def _pass(trace: AttemptTrace, step: int) -> int:
    return int(next(iter(trace.steps[step].values())).get("epoch", 0))


def _samples(trace: AttemptTrace, steps: Iterable[int]) -> Samples:
    return Counter(row for step in steps for record in trace.steps[step].values() for row in record["rows"])


def _ranges(samples: Samples) -> str:
    """``0–19, 40``, of the first ones."""
    ranges: list[list[int]] = []
    for sample in sorted(samples):
        if ranges and sample == ranges[-1][1] + 1:
            ranges[-1][1] = sample
        else:
            ranges.append([sample, sample])
    shown = [str(low) if low == high else f"{low}–{high}" for low, high in ranges[:_RANGES]]
    rest = sum(high - low + 1 for low, high in ranges[_RANGES:])
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
