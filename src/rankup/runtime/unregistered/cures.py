"""What is said of values that a resume would lose: their names, and the call that cures each.

``choice`` is that of ``--lost``. ``ACCEPT`` gives no error. ``STOP``, the choice in a job of a queue, gives one before
anything is lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from rankup.core.choices import ACCEPT, STOP
from rankup.core.whole_lines import say
from rankup.errors import RankupError

_NAMED = 12  # lines of a list
_ROOT = re.compile(r"\.?[^.[]*")  # ".0" is what a comprehension iterates over
_Values = Sequence[tuple[str, str, str]]  # paths, with the values of then and of now
_NOT_REGISTERED = (
    *("function", "type", "module", "method", "partial"),
    *("generator", "map", "filter", "zip", "cycle"),
)


def calls(
    paths: Iterable[str],
    kinds: Mapping[str, str],
    whole: Container[str],
    is_simple: Callable[[str], bool],
    unset: Mapping[str, str],
    named: Container[str] = (),
) -> list[str]:
    """A call for each variable of the script that holds one of the paths. ``kinds``: variable → the class of what it
    holds, unless that is a plain value. ``whole``: names of what was prepared or registered. ``is_simple``: whether a
    path is a number or the like. ``unset``: paths of what ``run.register`` refuses → what to keep of it.
    ``named``: paths of functions, and of objects of another class."""
    found: dict[str, str] = {}
    for path in paths:
        name = root_of(path)
        kind = kinds.get(name, "")
        last = name.rpartition(".")[2]
        short = kind.lower() if last == "self" else last
        if path in whole:
            found.setdefault(
                path,
                f"{path} is registered or prepared: change that object in place, and keep the name on it",
            )
        elif path in named:
            found.setdefault(
                path,
                f"{path}: values = run.register(phase=0), choose it by values.phase at the begin of each epoch, and "
                f"then run.forget({path!r})",
            )
        elif name in unset:
            found.setdefault(
                name,
                f"{last} itself cannot be registered: values = run.register({short}={unset[name].format(last)}), "
                f"set values.{short} whenever {last} moves on, and begin {last} by it",
            )
        elif held := next((each for each in unset if f"{path}.".startswith((f"{each}.", f"{each}["))), ""):
            end = held[len(name) :].strip(".")
            found.setdefault(
                name,
                f"{held}: keep in {last} how many were taken, and begin it by that number; "
                f"run.register({short}={last}) and run.forget({end!r})",
            )
        elif kind in _NOT_REGISTERED:
            found.setdefault(name, f"{path}: keep it in an object or a dict, and run.register that")
        elif not kind and name == path and is_simple(path):
            found.setdefault(
                name, f"values = run.register({short}={last}), and values.{short} in place of {last}"
            )
        else:
            found.setdefault(name, f"run.register({short}={last})")
    said = list(found.values())
    return [*said[:_NAMED], *([f"and {len(said) - _NAMED} more"] if len(said) > _NAMED else [])]


def root_of(path: str) -> str:
    """The variable that holds a path."""
    return path if path.isidentifier() else _ROOT.match(path)[0]  # type: ignore[index]


def differing(everyone: Sequence[Mapping[str, str]]) -> str:
    """What to say of values that differ between ranks under any-world, where a rank counts its own virtual shards."""
    first = everyone[0]
    names = sorted({name for mine in everyone for name, digest in mine.items() if first.get(name) != digest})
    return (
        f"{listed(names)} differ between ranks, and so depend on their number: any-world keeps the same only what all "
        "ranks compute alike"
        if names
        else ""
    )


def compared(lost: _Values) -> str:
    """Paths with the values of then and of now."""
    values = "; ".join(
        f"{path}: {was} with other values" if was == now else f"{path}: {was} when saved, {now} now"
        for path, was, now in lost[:_NAMED]
    )
    return values + (f"; and {len(lost) - _NAMED} more" if len(lost) > _NAMED else "")


def listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def changed(
    paths: Sequence[str], calls: Sequence[str], left_out: Sequence[str], choice: str, *, again: bool
) -> RankupError | None:
    """Of what changes and is in no snapshot. ``left_out``: paths that are not watched. ``again``: whether something was
    said before."""
    if choice == STOP:
        return RankupError(
            "state-lost",
            f"a resume of this job would lose what changes in training and is in no snapshot: {listed(paths)}",
            hint=f'{"; ".join(calls)}; run.forget(…) for what only prints; --lost accept (lost = "accept" in '
            "job.toml) if a resume may begin with their first values. The snapshots stay, and nothing is requeued",
            exit_code=1,
        )
    if choice == ACCEPT:
        return None
    what = "these values change as well" if again else "these values change"
    lines = [
        f"warning: {what} in training and are in no snapshot, so that a resume would stop with state-lost: "
        f"{listed(paths)}. Before the loop:",
        *(f"  {call}" for call in calls),
        "  run.forget(…) names what only prints",
    ]
    if left_out:
        lines.append(f"  not watched, since there is too much of it: {listed(left_out)}")
    say("\n".join(lines))
    return None


def lost(values: _Values, calls: Sequence[str], late: Sequence[str], choice: str) -> RankupError | None:
    """Of what a snapshot has noted. ``late``: paths that are registered since it was saved."""
    if _accepts(values, choice):
        return None
    hints = []
    if calls:
        hints += [
            f"{'; '.join(calls)} (then this snapshot's values are found again, if they are plain)",
            "run.forget(…) for what only prints",
        ]
    if late:
        hints.append(
            f"the next snapshots have {listed(late)}, but this one has not: set what the script can set by itself"
        )
    hints.append("--lost accept (RANKUP_LOST=accept) goes on with the values of now")
    return RankupError(
        "state-lost",
        f"this resume would lose values that no snapshot holds: {compared(values)}",
        hint=f"{'; '.join(hints)}. Nothing was changed, and the snapshot is kept",
        exit_code=1,
    )


def other_constants(values: _Values, calls: Sequence[str], choice: str) -> RankupError | None:
    """Of what training does not change, and another process has made otherwise."""
    if _accepts(values, choice):
        return None
    return RankupError(
        "state-lost",
        f"this resume would go on with other constants than the run has had: {compared(values)}",
        hint="make them alike in each attempt: with a seed, or from a file; a new run may also register them: "
        f"{'; '.join(calls)}; run.forget(…) for what training does not use; --lost accept (RANKUP_LOST=accept) "
        "goes on with the values of now. Nothing was changed, and the snapshot is kept",
        exit_code=1,
    )


def set_otherwise(values: _Values, choice: str) -> RankupError | None:
    """Of what the first step sets, and the first step of a resume has set otherwise."""
    if _accepts(values, choice):
        return None
    return RankupError(
        "state-lost",
        "the first step of this resume has set what the first step of the training had set otherwise: "
        f"{compared(values)}",
        hint="make it before the loop, and run.register it; run.forget(…) for what only prints; --lost accept "
        "(RANKUP_LOST=accept) goes on with the values of now. The snapshot is kept",
        exit_code=1,
    )


def _accepts(values: _Values, choice: str) -> bool:
    """Whether a resume may lose these values, which it then says."""
    if choice == ACCEPT:
        say(f"lost in this resume, as accepted: {compared(values)}")
    return choice == ACCEPT
