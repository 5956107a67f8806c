"""A resume in a later loop of a stage: the loops before it have ended, and the code between them runs again.

It ran before the snapshot was taken, so the snapshot has what it changed: weights that an LR finder puts back, a
schedule that it steps. Without care it would change them twice. So the loop in which the snapshot was taken restores it
again before its first batch; if ``run.save()`` took it after a loop, the same call does. What that code makes for
itself of the weights (a copy as a teacher) cannot be taken back: rank 0 names it. Nor can what it decides: if it leaves
the loops before that of the snapshot (early stopping by a loss that it measured on the snapshot's weights), the rest of
the training is lost, and rank 0 says so when the script ends.
"""

from __future__ import annotations

import sys
import weakref
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
        self._feed: DataFeed | None = None  # its data, and how many epochs or steps
        self._goal = 0
        # What to say if the script ends now. Its end may come while modules are cleared: the text is ready by then.
        self._at_end: list[str] = []
        weakref.finalize(self, _say, self._at_end)

    def state(self) -> list[Any]:
        ended = self._by_break, self.complete()
        return [self.number, *self._place, self._line, self._saves, *ended, self._goal]

    def begin(self, feed: DataFeed, unit: str, goal: int, *, stage: bool) -> None:
        """A loop begins; with a new ``stage``."""
        index = next(number for number, other in enumerate(self._run.feeds) if other is feed)
        self.number, self._place = (1 if stage else self.number + 1), [index, unit]
        self._line, self._saves, self._by_break = call_site(), 0, False
        self._feed, self._goal = feed, goal
        if stage:
            self._forget()

    def resumed(self, found: Snapshot) -> None:
        """The first loop of a stage has restored ``found``."""
        saved = list(found.metadata.get("loop", []))  # an older version has not noted it
        if saved[:2] == [self.number, self._place[0]] and self._run.world.is_main:
            self._warn_of_fewer(found, saved[7] if saved[7:] and saved[2] == self._place[1] else 0)
        if saved and (saved[0] > self.number or saved[4]):
            self._resumed, self._step = found, self._run.global_step
            self._models = self._untracked()
            self._note_end(found, saved)

    def _warn_of_fewer(self, found: Snapshot, before: int) -> None:
        """The loop is edited, or the script takes off what it has done, as without rankup: ``run.epochs(n - start)``.
        ``before``: how many epochs or steps it had; 0 if that is not known."""
        assert self._feed is not None
        position, unit = self._feed.position, self._place[1]
        done = position.total if unit == "steps" else position.epoch + (position.step > 0)
        if done > self._goal:
            at = f"step {position.total}" if unit == "steps" else f"epoch {position.epoch + 1}"
            what = f"{found.path.name} was taken in {at}: nothing is trained, and the weights are those of the snapshot"
        elif before > self._goal:
            what = f"was over {unit}={before} when {found.path.name} was saved: this training ends earlier"
        else:
            return
        print(
            f"warning: the loop at {self._line} is over {unit}={self._goal} now, and {what}. {unit}= counts from the "
            f"beginning, also after a resume: if the script takes off what is done ({unit}=n - start), leave that out",
            file=sys.stderr,
            flush=True,
        )

    def _note_end(self, found: Snapshot, saved: list[Any]) -> None:
        """The loop of the snapshot may not begin again. If it was at its end there, nothing of it is lost then."""
        number, _, _, line, saves, *how = saved
        if not self._run.world.is_main or number <= self.number or saves or any(how[:2]):
            return
        if line == self._line:
            self._run.print(
                "the loops before that of the snapshot are passed over, and the code between them runs again with the "
                "snapshot's state; with run.epochs such code runs once per epoch"
            )
        self._at_end.append(
            f"warning: the script has ended without the loop at {line} that {found.path.name} was taken in, its "
            f"number {number}: the rest of this training is missing. After the resume the code between the loops ran "
            "again, with the weights of the snapshot, and what it measures there is of a later step: if it leaves the "
            "loops (early stopping), it may do so too early. Write for epoch in run.epochs(n): for batch in epoch: …, "
            "and such code runs once per epoch"
        )

    def _forget(self) -> None:
        self._resumed = None
        self._at_end.clear()

    def stopped(self) -> None:
        """The run ends because it was asked to: what is missing is trained by the next attempt."""
        self._at_end.clear()

    def complete(self) -> bool:
        """Whether all steps of the loop are done."""
        if self._feed is None:
            return False
        position = self._feed.position
        if self._place[1] == "steps":
            return position.total >= self._goal
        return position.epoch + (position.step == self._feed.steps) >= self._goal

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
        self._forget()
        if self._run.global_step != self._step:  # a loop before it has trained: the script has changed
            return None
        self._warn_of_copies()
        return found

    def goes_on(self) -> None:
        """On rank 0: the first batch after a resume is next. A break may have ended its loop: the snapshot cannot tell
        a limit of time from early stopping."""
        if self._resumed is None:
            return
        saved = self._resumed.metadata["loop"]
        if self.number == saved[0] and any(saved[5:6]):
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


def _say(sentences: list[str]) -> None:
    """As a run is gone, or the interpreter ends. Not behind a traceback, which says why the training is not whole."""
    if getattr(sys, "last_value", None) is None:
        print("".join(f"{sentence}\n" for sentence in sentences), end="", file=sys.stderr, flush=True)
