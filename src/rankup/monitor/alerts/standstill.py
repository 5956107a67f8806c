"""No step for long, and why: which rank the others wait for, by the phases that the ranks tell each second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankup.core.units import duration
from rankup.monitor.alerts.alert import LIMITS, Symptom, rank_names
from rankup.monitor.rows import last_progress, rates
from rankup.monitor.series import RankPoint, RankSeries, RunSeries

_LIMITS = LIMITS["no-step"]
_STACKS = "press p in `rankup top` for the stacks of all ranks (py-spy)"


def standstill(run: RunSeries, now: float) -> Iterator[Symptom]:
    told = [(one, last) for one in run.current_ranks(now) if (last := one.series.last(now)) is not None]
    working = [(one, last) for one, last in told if last.phase != "ended"]
    if not working:
        return
    since = max(last_progress(one.series, now) for one, _ in working)
    if now - since < _patience(working, now):
        return
    behind, message, fix = _cause(working, now)
    yield Symptom(
        "no-step",
        "run",
        f"no step is finished: {message}",
        fix,
        ranks=behind,
        lost=len(working),
        hold=0.0,
        began=since,
    )


def is_still(run: RunSeries, now: float) -> bool:
    """Whether no rank has finished a step for as long as another alert looks back."""
    lasts = [(one, last) for one in run.current_ranks(now) if (last := one.series.last(now)) is not None]
    return bool(lasts) and all(now - last_progress(one.series, now) > 60 for one, _ in lasts)


def _patience(working: Sequence[tuple[RankSeries, RankPoint]], now: float) -> float:
    if all(last.steps == 0 for _, last in working):
        return _LIMITS["first_step"]
    if all(last.phase == "after-epoch" for _, last in working):
        return _LIMITS["after_epoch"]
    found = [rates(one.series, now - 60).step_s for one, _ in working]
    return max(
        _LIMITS["longer_than"], _LIMITS["steps"] * max((one for one in found if one is not None), default=0.0)
    )


def _cause(working: Sequence[tuple[RankSeries, RankPoint]], now: float) -> tuple[tuple[int, ...], str, str]:
    """(the ranks that the others wait for, what they do, what to do)."""
    silent = [(one, last) for one, last in working if now - last.time > _LIMITS["silent"]]
    if len(silent) == len(working):
        newest = max(last.time for _, last in working)
        ago = duration(now - newest)
        return (
            (),
            f"no rank has written anything for {ago}",
            "the job was killed or suspended, or the file system is gone: `rankup status` asks the scheduler",
        )
    if silent:
        ranks = tuple(one.rank for one, _ in silent)
        names = rank_names([one for one, _ in silent])
        return (
            ranks,
            f"{names} tell{'s' * (len(ranks) == 1)} nothing any more, and the other ranks wait",
            f"the process is stopped, swapped out or in a call that hangs; {_STACKS}",
        )
    lowest = min(last.global_step for _, last in working)
    # Who is at "arrived" waits for the others, unless they are a step further: then the reduction is done.
    reduced = any(last.global_step > lowest for _, last in working)
    late = [
        (one, last)
        for one, last in working
        if last.global_step == lowest and (reduced or last.phase != "arrived")
    ]
    if not late:
        return (
            (),
            "all ranks have computed their gradients, and wait in the reduction",
            f"the network between the nodes, or ranks in different collectives; {_STACKS}",
        )
    ranks, names = tuple(one.rank for one, _ in late), rank_names([one for one, _ in late])
    others = ", and the other ranks wait" if len(late) < len(working) else ""
    verb = "waits" if len(late) == 1 else "wait"
    if all(last.phase == "data" for _, last in late):
        return (
            ranks,
            f"{names} {verb} for data{others}",
            f"the data loader or its file system hangs; {_STACKS}",
        )
    if all(last.phase == "after-epoch" for _, last in late):
        where = (
            "is in the code after the inner loop"
            if len(late) == 1
            else "are in the code after the inner loop"
        )
        return ranks, f"{names} {where}{others}", f"an evaluation or a snapshot takes long; {_STACKS}"
    if all(last.phase == "arrived" for _, last in late):
        does = "does not finish its step" if len(late) == 1 else "do not finish their step"
        return (
            ranks,
            f"{names} {does} after the reduction{others}",
            f"the optimizer, or code of the script after it, hangs; {_STACKS}",
        )
    where = "is in the body of a step" if len(late) == 1 else "are in the body of a step"
    return ranks, f"{names} {where}{others}", f"a computation or a collective of the script hangs; {_STACKS}"
