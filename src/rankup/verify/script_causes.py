"""What a resume of any script has not restored: a table of causes, in the order in which a step uses its inputs.

The first row that applies is the answer; the last one always applies. ``causes.py`` is the same for scripts whose loop
rankup runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rankup.verify.first_difference import LOSS, UNTRACKED
from rankup.verify.script_pair import Pair

ROUNDING = "rounding"
UNTRAINED = "untrained-weights-not-restored"
SAVE_UNTRAINED = (
    "save the state of the average or the teacher, too, and load it; do not copy the model's weights again"
)
SAVE_BUFFERS = "save the whole model.state_dict(), and load it with strict=True"
SAVE_GENERATORS = (
    "save torch.get_rng_state(), random.getstate() and numpy.random.get_state() of each rank, and set them"
)


class Cause(NamedTuple):
    code: str
    applies: Callable[[Pair], bool]
    message: Callable[[Pair], str] | str
    fix: str


def _weights(pair: Pair) -> str:
    if pair.attempt.restored == "nothing":
        return "the weights after the resume are those of no step before it"
    if pair.stale_weights:
        state = f"the optimizer's state is that after step {pair.saved_at}"
        return f"the weights are those after step {pair.step - 1}, and {state}"
    return "the weights that this optimizer steps are others"


def _optimizer(pair: Pair) -> str:
    message = "the optimizer's state before the step is another one (moments, counts of steps)"
    return message if pair.optimizer_of is None else f"{message}: that before step {pair.optimizer_of}"


def _rates(pair: Pair) -> str:
    ours, other = (_numbers(each["before"]["lr"]) for each in (pair.mine, pair.theirs))
    same = pair.steps_with(lambda record: bool(record["before"]["lr"] == pair.theirs["before"]["lr"]))
    where = f", that of step {same[0]}" if same else ""
    return f"the learning rate is {other}{where}, and not {ours}: the schedule was not restored"


def _numbers(values: list[float]) -> str:
    return ", ".join(f"{value:.6g}" for value in dict.fromkeys(values))


def _frozen(pair: Pair) -> str:
    ours, other = (each["before"]["frozen"] for each in (pair.mine, pair.theirs))
    return f"{other} parameters are frozen (requires_grad), and not {ours}"


def _other_batch(pair: Pair) -> bool:
    return bool(pair.mine["batch"] != pair.theirs["batch"])


def _inputs_elsewhere(pair: Pair) -> list[int]:
    """The steps whose modules were given what those of the resumed step were, if they were given other values at this
    step. Data may come from no DataLoader."""
    other = {*pair.theirs["inputs"]} - {*pair.mine["inputs"]}
    return pair.steps_with(lambda record: bool(other & {*record["inputs"]})) if other else []


def _batch(pair: Pair) -> str:
    mine, theirs = pair.mine, pair.theirs
    elsewhere = pair.steps_with(lambda record: bool(record["batch"] == theirs["batch"]))
    if not _other_batch(pair):
        elsewhere = _inputs_elsewhere(pair)
        if not elsewhere:
            return (
                "the order of the epoch was drawn anew, from another state of torch's generator than before"
            )
    where = f"that of step {elsewhere[0]}" if elsewhere else "another one"
    if not elsewhere and theirs["rows"] and _known(pair).issuperset(theirs["rows"]):
        where = "in another order" if {*mine["rows"]} == {*theirs["rows"]} else "made of other samples"
    return f"the batch of step {pair.step} is {where}: the position in the data was not restored"


def _drawn_anew(pair: Pair) -> bool:
    """Whether the resume is within a pass of a loader whose order it draws from another state of torch's generator."""
    if pair.mine["iterated"] is not None or pair.theirs["iterated"] is None:
        return False
    began = [
        ranks[pair.rank]["iterated"] for step, ranks in sorted(pair.first.steps.items()) if step < pair.step
    ]
    state: dict[str, str] = next((each for each in reversed(began) if each is not None), {})
    name = "generator torch"
    return bool(pair.first.begin[pair.rank]["draws"]) and state.get(name) != pair.theirs["iterated"].get(name)


def _given_others(pair: Pair) -> bool:
    """Whether the first module of the step was given other values, which no DataLoader made."""
    made = pair.mine["batches"] or pair.theirs["batches"]
    return not made and bool(pair.mine["inputs"][:1] != pair.theirs["inputs"][:1])


def _drawn_ahead(pair: Pair) -> bool:
    """Whether the resume set a generator to what it was when the step's batch was at hand, and then drew from it."""
    ours, other = (each.get("called") or {} for each in (pair.mine, pair.theirs))
    restored = pair.theirs.get("set", {})
    moved = (name for name, state in restored.items() if ours.get(name) == state != other.get(name))
    return _given_others(pair) and any(moved)


def _known(pair: Pair) -> set[str]:
    """All samples of the uninterrupted training."""
    return {row for ranks in pair.first.steps.values() for each in ranks.values() for row in each["rows"]}


def _generators_of_the_batch(pair: Pair) -> list[str]:
    """Those from which the training makes its batches, and which were others before a loader began: or, if this step is
    within a pass of a loader, which begin where they did in the very first process."""
    ours, other = pair.mine["iterated"], pair.theirs["iterated"]
    if ours is None or other is None:
        ours, other = (each.begin[pair.rank]["generators"] for each in (pair.first, pair.attempt))
        reached = pair.first.steps.get(pair.attempt.resumed_at, {}).get(pair.rank, pair.mine)["untracked"]
        found = [name for name in ours if reached.get(name) != ours[name] == other.get(name)]
    else:
        found = [name for name in ours if other.get(name) != ours[name]]
    return [name for name in found if _makes_batches(pair, name)]


def _makes_batches(pair: Pair, name: str) -> bool:
    """torch's generator moves at each epoch, whatever the order depends on; the others only if something draws."""
    begin = pair.first.begin[pair.rank]
    records = [ranks[pair.rank] for ranks in pair.first.steps.values() if pair.rank in ranks]
    states = {record["untracked"].get(name) for record in records}
    if name != "generator torch":
        return len(states) > 1
    # The rows are the sampler's indices, or else digests of what is in the batch.
    augmented = pair.mine["rows"] == pair.theirs["rows"] or not _known(pair).issuperset(pair.theirs["rows"])
    return begin["draws"] or (begin["workers"] and augmented) or len(states) == len(records)


def _generators(pair: Pair) -> str:
    names = _generators_of_the_batch(pair) if _other_batch(pair) or _inputs_elsewhere(pair) else []
    if names:
        listed = ", ".join(name.removeprefix("generator ") for name in names)
        return f"the batch is another one, and so were the generators that it is drawn from: {listed}"
    listed = ", ".join(
        name.removeprefix(f"{UNTRACKED}generator ") for name in pair.names if name.startswith(UNTRACKED)
    )
    return f"the generators' states are others (dropout, noise, shuffling): {listed}"


def _fewer_gradients(pair: Pair) -> bool:
    """Whether the step summed only the last of its gradients."""
    mine, theirs = pair.mine["loss"], pair.theirs["loss"]
    return 0 < len(theirs) < len(mine) and mine[-len(theirs) :] == theirs


CAUSES = (
    Cause(
        "weights-not-restored",
        lambda pair: (
            pair.attempt.restored == "nothing"
            or pair.stale_weights
            or (pair.step > pair.attempt.resumed_at + 1 and pair.begins and pair.began_with_other("weights"))
        ),
        _weights,
        "save the weights of the step at hand (not an average, not the best ones), after optimizer.step(), and load "
        "them before the optimizer is made",
    ),
    Cause(
        "optimizer-not-restored",
        lambda pair: pair.began_with_other("optimizer"),
        _optimizer,
        "save optimizer.state_dict(), and load it into the optimizer that steps",
    ),
    Cause(
        "schedule-not-restored",
        lambda pair: pair.began_with_other("lr"),
        _rates,
        "save scheduler.state_dict() and load it; or restore what the rate is computed from: a step, a generator",
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
        "frozen-not-restored",
        lambda pair: pair.began_with_other("frozen"),
        _frozen,
        "freeze and unfreeze by the epoch or step that was restored, also right after the resume",
    ),
    Cause(
        "pending-gradients",
        _fewer_gradients,
        "the first losses of the step are missing: their gradients were accumulated before the save, and are lost",
        "save after optimizer.step(), or save the gradients",
    ),
    Cause(
        "data-not-restored",
        _drawn_ahead,
        "the step's batch was drawn ahead, before the save, and is lost: after the resume another one was drawn",
        "save the batch that is drawn ahead, and use it after the resume; or draw it after the save",
    ),
    Cause(
        "generators-not-restored",
        lambda pair: (
            bool(_other_batch(pair) or _inputs_elsewhere(pair)) and bool(_generators_of_the_batch(pair))
        ),
        _generators,
        SAVE_GENERATORS,
    ),
    Cause(
        "data-not-restored",
        lambda pair: _other_batch(pair) or bool(_inputs_elsewhere(pair)) or _drawn_anew(pair),
        _batch,
        "save the epoch and the batches of it that are done, set the sampler's epoch (set_epoch) or its generator, and "
        "skip what was trained; a DataLoader draws its seed from torch's generator at each epoch",
    ),
    Cause(
        "generators-not-restored",
        lambda pair: not pair.rounded and any(name.startswith(UNTRACKED) for name in pair.names),
        _generators,
        SAVE_GENERATORS,
    ),
    Cause(
        # The generators are the same, so it is no noise.
        "data-not-restored",
        _given_others,
        "the first module of the step was given other values, and no DataLoader made them",
        "save the position in the data exactly, not the nearest file or group of rows, and go on from it",
    ),
    Cause(
        "buffers-not-restored",
        lambda pair: pair.began_with_other("counts"),
        "the model's buffers are others, also those that count",
        SAVE_BUFFERS,
    ),
    Cause(
        UNTRAINED,
        lambda pair: pair.began_with_other("untrained"),
        "weights that no optimizer steps are others: an average (EMA), a teacher, a frozen part",
        SAVE_UNTRAINED,
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
        SAVE_BUFFERS,
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


# What a step of another optimizer may tell more of.
VAGUE = ("generators-not-restored", "hidden-state", "buffers-not-restored", "other-resume")
_RESTORED = (
    "weights-not-restored",
    "optimizer-not-restored",
    "schedule-not-restored",
    "options-not-restored",
)


def likeliest(pairs: list[Pair], later: list[Pair]) -> tuple[Pair, Cause, str]:
    """Of one step on several ranks: the pair that tells most, its cause, and the message. What one rank has lost
    changes the gradients of all. ``later``: the first steps of the other optimizers after the resume; if the cause
    is a vague one, what one of them began with tells more."""
    pair, cause = min(map(_judged, pairs), key=lambda each: CAUSES.index(each[1]))
    if cause.code in VAGUE:
        others = [each for each in map(_judged, later) if each[1].code in _RESTORED]
        pair, cause = others[0] if others else (pair, cause)
    return pair, cause, cause.message if isinstance(cause.message, str) else cause.message(pair)


# What no sum rounds, and what shows in a loss that is far from the other one.
_NOT_ROUNDED = (
    "schedule-not-restored",
    "frozen-not-restored",
    "generators-not-restored",
    "data-not-restored",
    "pending-gradients",
    "hidden-state",
    "buffers-not-restored",
)


def after_rounding(pairs: list[Pair]) -> tuple[Pair, Cause, str] | None:
    """Of the steps after one that differs in the last digits alone, the first that differs by more."""
    for pair in (pair for pair in pairs if pair.more_than_rounded):
        for cause in CAUSES:
            if cause.code in _NOT_ROUNDED and cause.applies(pair):
                return pair, cause, cause.message if isinstance(cause.message, str) else cause.message(pair)
    return None


def _judged(pair: Pair) -> tuple[Pair, Cause]:
    return pair, next(cause for cause in CAUSES if cause.applies(pair))
