"""The saves of a loop: when one is due, and what it consists of."""

from __future__ import annotations

import time

from rankup.runtime.checkpointing import state
from rankup.runtime.checkpointing.policy import Snapshots
from rankup.runtime.checkpointing.state import StateParts
from rankup.runtime.context import RunContext
from rankup.runtime.data.batches import DataFeed
from rankup.snapshots.saver import Saver
from rankup.snapshots.state import SnapshotState

# The assumed duration of a save, as a multiple of the measured one, and of everything else that ending takes (seconds).
CAUTION, LEAVING_S = 3.0, 15.0
# Steps that a save waits for the end of a window of gradients that is accumulated by hand.
WINDOW_PATIENCE = 256


class LoopSaves:
    """Of one run. Without a ``saver`` nothing is saved."""

    def __init__(self, run: RunContext, parts: StateParts, policy: Snapshots) -> None:
        self.saver: Saver | None = None  # of the loop that is running
        self.feed: DataFeed | None = None  # likewise
        self.epochs_since = 0  # that were done since the last save
        self._run = run
        self._parts = parts
        self._unit, self._count = policy.interval()
        self._due_after_epoch = False  # a save is due after the code that follows the inner loop
        self._waited = 0  # steps for which a save has waited for the end of a window
        self._saved: object = None  # the position of the run when it was last saved
        self._saved_at = time.monotonic()

    def due_at_step(self) -> bool:
        return bool(self._waited) or (self._unit == "step" and self._run.global_step % self._count == 0)

    def due_at_epoch_end(self) -> bool:
        return self._due_after_epoch or (self._unit == "epoch" and self.epochs_since >= self._count)

    def time_is_up(self) -> bool:
        """By rank 0's clock; all ranks are told when they next agree."""
        return self._unit == "s" and time.monotonic() - self._saved_at >= self._count

    def takes(self) -> float | None:
        """How long stopping takes, in seconds; None if no save was measured yet."""
        whole = self.saver.seconds.whole if self.saver is not None else None
        return None if whole is None else CAUTION * whole + LEAVING_S

    def state(self, *, alone: bool = False, gradients: bool = False) -> SnapshotState:
        return state.collect_to_save(self._run, self._parts, alone=alone, gradients=gradients)

    def save(self, *, pending: bool | None = None) -> bool:
        """Save, unless this position is saved already; whether it did. ``pending``: whether some rank has gradients
        that wait for a step; None to find out."""
        if self.saver is None or self._saved == self._position():
            return False
        gradients = self._parts.pending.any_rank() if pending is None else pending
        self.saver.save(self._run.steps_reached, self.state(gradients=gradients))
        self.note_saved()
        self.restart_clock()
        self.epochs_since = self._waited = 0
        self._due_after_epoch = False
        return True

    def save_after_window(self) -> None:
        """Save; later, if gradients that were accumulated by hand wait for a step."""
        if self.saver is None:
            return
        if self.feed is not None and self.feed.position.step == self.feed.steps:
            # After the code that follows the inner loop: a resume before it would run it without the loop's variables.
            self._due_after_epoch = True
            return
        pending = self._parts.pending.any_rank()
        if pending and not self._parts.pending.never_cleared and self._waited < WINDOW_PATIENCE:
            self._waited += 1
            return
        self.save(pending=pending)

    def note_saved(self) -> None:
        """The newest snapshot has the state at hand."""
        self._saved = self._position()

    def restart_clock(self) -> None:
        self._saved_at = time.monotonic()

    def wait(self) -> None:
        """Until what is being saved is durable; no collective."""
        if self.saver is not None:
            self.saver.wait()

    def before_step(self, *_: object) -> None:
        """An optimizer is about to change its moments, which a save may still be copying."""
        if self.saver is not None:
            self.saver.wait_staged()

    def end(self) -> None:
        """After the last epoch: save its state, so that a run that is done begins no epoch again."""
        if self._unit:
            self.save()
        assert self.saver is not None
        self.saver.close()
        self.saver = None

    def release(self) -> None:
        """Other runs may have the directory; no collective."""
        if self.saver is not None:
            self.saver.release()
            self.saver = None

    def _position(self) -> object:
        return self._run.steps_reached, [feed.position.resume() for feed in self._run.feeds]
