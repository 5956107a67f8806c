"""What a resume of any script has not restored: a table of causes, in the order in which a step uses its inputs.

The first row that applies is the answer; the last one always applies. ``causes.py`` is the same for scripts whose loop
rankup runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from rankup.verify.first_difference import LOSS, UNTRACKED, differing
from rankup.verify.trace_reader import AttemptTrace, Record

ROUNDING = "rounding"
_ROUNDED = 1e-5  # of a loss, and of the sum of the gradients


@dataclass(frozen=True)
class Pair:
    """One step on one rank: ``mine`` of the uninterrupted training ``first``, ``theirs`` of the resumed ``attempt``."""

    first: AttemptTrace
    attempt: AttemptTrace
    step: int
    mine: Record
    theirs: Record
    ignore: frozenset[str]

    def began_with_other(self, name: str) -> bool:
        """Of ``weights``, ``optimizer``, ``options``, ``lr``."""
        return bool(self.mine["before"][name] != self.theirs["before"][name])

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


class Cause(NamedTuple):
    code: str
    applies: Callable[[Pair], bool]
    message: Callable[[Pair], str] | str
    fix: str


def _rates(pair: Pair) -> str:
    ours, other = (_numbers(each["before"]["lr"]) for each in (pair.mine, pair.theirs))
    same = [
        step
        for step, ranks in sorted(pair.first.steps.items())
        if any(record["before"]["lr"] == pair.theirs["before"]["lr"] for record in ranks.values())
    ]
    where = f", that of step {same[0]}" if same else ""
    return f"the learning rate is {other}{where}, and not {ours}: the schedule was not restored"


def _numbers(values: list[float]) -> str:
    return ", ".join(f"{value:.6g}" for value in dict.fromkeys(values))


def _batch(pair: Pair) -> str:
    mine, theirs = pair.mine, pair.theirs
    elsewhere = [
        step
        for step, ranks in sorted(pair.first.steps.items())
        if any(record["batch"] == theirs["batch"] for record in ranks.values())
    ]
    known = {row for ranks in pair.first.steps.values() for each in ranks.values() for row in each["rows"]}
    where = f"that of step {elsewhere[0]}" if elsewhere else "another one"
    if not elsewhere and theirs["rows"] and known.issuperset(theirs["rows"]):
        where = "in another order" if {*mine["rows"]} == {*theirs["rows"]} else "made of other samples"
    return f"the batch of step {pair.step} is {where}: the position in the data was not restored"


CAUSES = (
    Cause(
        "weights-not-restored",
        lambda pair: pair.attempt.restored == "nothing",
        "the weights after the resume are those of no step before it",
        "save the weights of the step at hand (not an average, not the best ones), after optimizer.step(), and load "
        "them before the optimizer is made",
    ),
    Cause(
        "optimizer-not-restored",
        lambda pair: pair.began_with_other("optimizer"),
        "the optimizer's state before the step is another one (moments, counts of steps)",
        "save optimizer.state_dict(), and load it into the optimizer that steps",
    ),
    Cause(
        "schedule-not-restored",
        lambda pair: pair.began_with_other("lr"),
        _rates,
        "save scheduler.state_dict() and load it; or compute the rate from the step that was restored",
    ),
    Cause(
        "options-not-restored",
        lambda pair: pair.began_with_other("options"),
        "the optimizer's options are others (weight decay, momentum, betas)",
        "load optimizer.state_dict(), and give the optimizer the same arguments after a resume",
    ),
    Cause(
        # Before the data: a step that is skipped takes a batch.
        "loss-scale-not-restored",
        lambda pair: bool(pair.mine["before"].get("scales") != pair.theirs["before"].get("scales")),
        "the loss scale or its growth tracker is another one",
        "save scaler.state_dict() of the GradScaler, and load it",
    ),
    Cause(
        "data-not-restored",
        lambda pair: bool(pair.mine["batch"] != pair.theirs["batch"]),
        _batch,
        "save the epoch and the batches of it that are done, set the sampler's epoch (set_epoch) or its generator, and "
        "skip what was trained; a DataLoader draws its seed from torch's generator at each epoch",
    ),
    Cause(
        "generators-not-restored",
        lambda pair: not pair.rounded and any(name.startswith(UNTRACKED) for name in pair.names),
        "the generators' states are others (dropout, noise, shuffling)",
        "save torch.get_rng_state(), random.getstate() and numpy.random.get_state() of each rank, and set them",
    ),
    Cause(
        "hidden-state",
        lambda pair: (
            not pair.rounded and (LOSS in pair.names or pair.mine["gradients"] != pair.theirs["gradients"])
        ),
        "the loss of the same batch with the same weights is another one, or its gradients are",
        "something that the loss depends on is not saved: a temperature, a teacher, a counter, a loss scale",
    ),
    Cause(
        "buffers-not-restored",
        lambda pair: not pair.rounded and "buffers" in pair.names,
        "the model's buffers are others",
        "save the whole model.state_dict()",
    ),
    Cause(
        ROUNDING,
        lambda pair: pair.rounded,
        "the gradients differ in the last digits alone: what the step began with is equal",
        "decide whether that is enough. DDP on three ranks or more sums gradients in another order in its first step; "
        "other sources are cuDNN's choice of algorithms and atomic additions",
    ),
    Cause(
        "other-resume",
        lambda pair: True,
        "the step gives other weights from the same gradients",
        "the optimizer keeps something outside of its state_dict(): save it, too",
    ),
)


def likeliest(pairs: list[tuple[int, Pair]]) -> tuple[int, Cause, str]:
    """Of one step on several ranks: the rank that tells most, its cause, and the message. What one rank has lost
    changes the gradients of all."""
    order, rank, pair = min(
        (next(n for n, cause in enumerate(CAUSES) if cause.applies(pair)), rank, pair) for rank, pair in pairs
    )
    cause = CAUSES[order]
    return rank, cause, cause.message if isinstance(cause.message, str) else cause.message(pair)
