"""Loops of several trainings that are open at the same time, one in another's body, or in turns.

Each training saves by itself and resumes from its own newest snapshot. So trainings in turns continue from different
times after a kill, and a training without a name that begins in each pass of another one's loop is found by its order,
which is another one in a resumed loop. Neither is an error without a kill: rank 0 warns.
"""

from __future__ import annotations

from rankup.runtime.checkpointing.carried.messages import warn

# Of this process, in the order in which they began.
_open: list[OpenLoop] = []


class OpenLoop:
    """Of one training, from its beginning to its end. ``warns``: on the rank that does."""

    def __init__(self, name: str, *, warns: bool) -> None:
        self._name = name
        self._warns = warns
        self._unnamed = 0  # trainings without a name that began in it

    def begin(self, *, first: bool) -> None:
        """``first``: whether it is the first loop of its training."""
        if first and not self._name:
            for outer in _open:
                outer._unnamed += 1
                if outer._unnamed == 2 and outer._warns:
                    warn(
                        "several trainings without a name begin in the loop of another one, and are found by their "
                        "order: a resume in a later pass takes the snapshots of the first pass for those of that "
                        'one; rankup.init(name=f"probe-{epoch.index}") tells them apart'
                    )
        _open.append(self)

    def step_done(self) -> None:
        """A step of this loop. Call it only where a directory is saved to."""
        if _open[-1] is not self and self._warns:
            self._warns = False
            warn(
                "the loops of two trainings take turns, and each of them saves by itself: after a kill they go on "
                "from different times, and zip over both ends with the shorter rest; use one run for both "
                "(run.prepare for each model, StackDataset for the data), or train one after the other"
            )

    def end(self) -> None:
        if self in _open:
            _open.remove(self)


def warn_of_another_training(snapshot: str) -> None:
    """Trainings without a name are found by their order. A script that leaves out those that are done finds the first
    one where it begins the second."""
    warn(
        f"nothing is trained, since {snapshot} is the end of a training without a name; but that one began with other "
        "weights, and may be another one: if the script leaves out trainings that are done, their order has changed, "
        'and rankup.init(name=f"member-{k}") tells them apart'
    )
