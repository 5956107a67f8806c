"""One step of any script, uninterrupted and after a resume: what it began with, and what of it differs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rankup.verify.first_difference import differing
from rankup.verify.trace_reader import AttemptTrace, Record

_ROUNDED = 1e-5  # of a loss, and of the sum of the gradients
_SOON, _FAR = 5, 0.05  # steps after a resume in which rounding has not changed a loss by more than this


@dataclass(frozen=True)
class Pair:
    """One step on one rank: ``mine`` of the uninterrupted training ``first``, ``theirs`` of the resumed ``attempt``.
    ``saved_at``: the step after which the script saved last before the kill."""

    first: AttemptTrace
    attempt: AttemptTrace
    step: int
    mine: Record
    theirs: Record
    ignore: frozenset[str]
    rank: int
    saved_at: int | None = None

    def began_with_other(self, name: str) -> bool:
        """Of ``weights``, ``optimizer``, ``options``, ``lr``, ``frozen``, ``untrained``, ``counts``."""
        return bool(self.mine["before"][name] != self.theirs["before"][name])

    @property
    def begins(self) -> bool:
        """Whether this optimizer has not stepped before in the resumed process."""
        number = self.theirs["before"]["optimizer_number"]
        earlier = (ranks.get(self.rank) for step, ranks in self.attempt.steps.items() if step < self.step)
        return all(each is None or each["before"]["optimizer_number"] != number for each in earlier)

    def steps_with(self, has: Callable[[Record], bool]) -> list[int]:
        """The steps of the uninterrupted training whose record ``has`` it, on any rank."""
        return [step for step, ranks in sorted(self.first.steps.items()) if any(map(has, ranks.values()))]

    @property
    def optimizer_of(self) -> int | None:
        """The step that began with the optimizer's state of the resumed one, if it is another."""
        state = self.theirs["before"]["optimizer"]
        found = self.steps_with(lambda record: bool(record["before"]["optimizer"] == state))
        return found[-1] if found and found[-1] > 1 else None

    @property
    def stale_weights(self) -> bool:
        """Whether the optimizer's state is that of the last save, and the weights are older."""
        if not self.began_with_other("optimizer") or self.saved_at is None:
            return False
        return self.optimizer_of == self.saved_at + 1 and self.step <= self.saved_at

    @property
    def names(self) -> list[str]:
        return [name for name in differing(self.mine, self.theirs) if name not in self.ignore]

    @property
    def rounded(self) -> bool:
        """Whether losses and gradients are others, and only in the last digits."""
        losses = [[float.fromhex(loss) for loss in each["loss"]] for each in (self.mine, self.theirs)]
        both = [*zip(*losses, strict=False), (self.mine["gradient_size"], self.theirs["gradient_size"])]
        near = all(abs(a - b) <= _ROUNDED * max(abs(a), abs(b)) for a, b in both)
        other = self.mine["gradients"] != self.theirs["gradients"]
        return other and near and len(losses[0]) == len(losses[1])

    @property
    def more_than_rounded(self) -> bool:
        """Whether this step, after one that differs in the last digits alone, has something that no sum rounds and is
        another: or soon after the resume quite another loss."""
        exact = any(self.began_with_other(name) for name in ("lr", "frozen", "counts"))
        if exact or self.mine["batch"] != self.theirs["batch"]:
            return True
        losses = [[float.fromhex(loss) for loss in each["loss"]] for each in (self.mine, self.theirs)]
        soon = self.step <= self.attempt.resumed_at + _SOON
        return len(losses[0]) != len(losses[1]) or (
            soon and any(abs(a - b) > _FAR * max(abs(a), abs(b)) for a, b in zip(*losses, strict=True))
        )
