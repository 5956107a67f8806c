"""Where a resumed process of any script goes on: at the step before which an earlier process had what it has now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Position(NamedTuple):
    """``done``: steps. ``restored``: ``state``, ``weights`` alone, or ``nothing``. ``step``: the record of the next."""

    done: int
    restored: str
    step: dict[str, Any] | None = None


def position(
    steps: Sequence[dict[str, Any]], before: dict[str, Any], batches: Sequence[str], killed: int
) -> Position:
    """Among the ``steps`` of the processes before: the weights decide. Several steps have the same if the rate was zero
    or a gradient was; then the optimizer's state decides, then that the script saved there, then the rates and the
    batch; at last the later one does."""
    same = [step for step in steps if step["before"]["weights"] == before["weights"]]

    def evidence(step: dict[str, Any]) -> tuple[bool | int, ...]:
        began, done = step["before"], int(step["step"]) - 1
        return (
            began["optimizer"] == before["optimizer"],
            done <= killed,
            bool(step.get("saved")),
            began.get("scales") == before.get("scales"),
            began["options"] == before["options"],
            bool(batches) and same_end(batches, step.get("batches", ())),
            done,
        )

    if not same:
        return Position(killed, "nothing")
    step = max(same, key=evidence)
    done = int(step["step"]) - 1
    restarted = done > 0 or step["before"]["lr"] == before["lr"]
    if step["before"]["optimizer"] == before["optimizer"] and restarted:
        return Position(done, "state", step)
    # Else only the weights of the beginning: nobody has loaded them.
    return Position(done, "weights", step) if done else Position(killed, "nothing")


def same_end(mine: Sequence[str], theirs: Sequence[str]) -> bool:
    """Whether the last batches are the same: an evaluation, and batches that are skipped, come before them."""
    both = min(len(mine), len(theirs))
    return both > 0 and mine[-both:] == theirs[-both:]
