"""A resume in a later loop of a stage: the loops before it have ended, and the code between them runs again.

It ran before the snapshot was taken, so the snapshot has what it changed: weights that an LR finder puts back, a
schedule that it steps. Without care it would change them twice. So the loop in which the snapshot was taken restores it
again before its first batch; if ``run.save()`` took it after a loop, the same call does. What that code makes for
itself of the weights (a copy as a teacher) cannot be taken back: rank 0 names it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from torch import nn

from rankup.runtime.call_site import call_site
from rankup.runtime.checkpointing.untracked_state import find_untracked
from rankup.runtime.context import RunContext
from rankup.runtime.data.batches import DataFeed
from rankup.runtime.tracing.fingerprint import fingerprint
from rankup.runtime.tracing.script_variables import namespaces
from rankup.snapshots.snapshot import Snapshot


class LaterLoops:
    """Which loop of its stage a snapshot is of."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self.number = 0  # of the loop that runs, or ran last, from 1 in each stage
        self._place: list[Any] = []  # its data and its unit
        self._line = ""  # of the script
        self._saves = 0  # calls of ``run.save()`` since it ended
        self._by_break = False  # whether a break ended it
        self._resumed: Snapshot | None = None  # what has been restored
        self._step = 0  # of it
        self._models: dict[int, str] = {}  # modules that were there at the resume and are not prepared

    def state(self) -> list[Any]:
        return [self.number, *self._place, self._line, self._saves, self._by_break]

    def begin(self, feed: DataFeed, unit: str, *, stage: bool) -> None:
        """A loop begins; with a new ``stage``."""
        index = next(number for number, other in enumerate(self._run.feeds) if other is feed)
        self.number, self._place = (1 if stage else self.number + 1), [index, unit]
        self._line, self._saves, self._by_break = call_site(), 0, False
        if stage:
            self._resumed = None

    def resumed(self, found: Snapshot) -> None:
        """The first loop of a stage has restored ``found``."""
        saved = list(found.metadata.get("loop", []))  # an older version has not noted it
        if saved and (saved[0] > self.number or saved[4]):
            self._resumed, self._step = found, self._run.global_step
            self._models = self._untracked()

    def ended_by_break(self) -> None:
        self._by_break = True

    def left(self) -> bool:
        """Whether the loop that begins was left by a break before the snapshot was taken: it must not go on. If it is
        the loop of the snapshot, then a condition has left out those before it in this attempt."""
        if self._resumed is None or self._run.global_step != self._step:
            return False
        number, _, _, line, *_ = self._resumed.metadata["loop"]
        return bool(self.number < number and self._line != line)

    def saves(self) -> Snapshot | None:
        """``run.save()`` is called outside of loops: the snapshot to restore there instead, if that call took it."""
        self._saves += 1
        return self.again()

    def again(self) -> Snapshot | None:
        """The snapshot to restore again where it was taken: as a loop begins, or in ``saves``."""
        found, here = self._resumed, self.state()
        if found is None or [*found.metadata["loop"][:3], found.metadata["loop"][4]] != [*here[:3], here[4]]:
            return None
        self._resumed = None
        if self._run.global_step != self._step:  # a loop before it has trained: the script has changed
            return None
        self._warn_of_copies()
        return found

    def goes_on(self) -> None:
        """On rank 0: the first batch after a resume is next. A break may have ended its loop: the snapshot cannot tell
        a limit of time from early stopping."""
        if self._resumed is None:
            return
        number, _, _, _, _, *by_break = self._resumed.metadata["loop"]
        if self.number == number and any(by_break):
            print(
                f"warning: a break had ended the loop at {self._line} before run.save() took this snapshot, and the "
                "loop goes on now. If it must not, for early stopping, register what decides: "
                "values = run.register(stopped=False), values.stopped = True before the break, and "
                "if values.stopped: break as the first statement of the loop over epochs",
                file=sys.stderr,
                flush=True,
            )

    def _untracked(self) -> dict[int, str]:
        if not self._run.world.is_main:
            return {}
        things = find_untracked(self._run, namespaces(), trusting=True).values()
        return {id(thing): _weights(thing) for thing in things if isinstance(thing, nn.Module)}

    def _warn_of_copies(self) -> None:
        if not self._run.world.is_main:
            return
        found: Mapping[str, Any] = find_untracked(self._run, namespaces(), trusting=True)
        for name, thing in found.items():
            if isinstance(thing, nn.Module) and self._models.get(id(thing)) != _weights(thing):
                print(
                    f"warning: the code between two loops runs again after this resume, and {name} gets its weights "
                    "there: from the snapshot, which is of a later step. run.register it before the first loop, or "
                    "begin a new stage by another run.prepare, whose snapshots are apart from those before it",
                    file=sys.stderr,
                    flush=True,
                )


def _weights(model: nn.Module) -> str:
    return fingerprint([*model.parameters(), *model.buffers()])
