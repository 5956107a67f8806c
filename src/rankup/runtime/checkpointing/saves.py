"""The saves of a loop: when one is due, and what it consists of.

A resume enters the loop: it gives a batch that follows. So what a resume goes on from is taken within a loop, before a
step. Before the last step of an epoch, and of the loop, the state is copied, if the copy costs little: it is what an
interrupted evaluation, and a script that is started again after its loop has ended, go on from.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from rankup.runtime.checkpointing.policy import Snapshots
from rankup.runtime.checkpointing.state_parts import StateParts
from rankup.runtime.context import RunContext
from rankup.runtime.data.batches import DataFeed
from rankup.runtime.distributed.control import raise_on_all
from rankup.runtime.loop.optimizer_steps import OptimizerSteps

if TYPE_CHECKING:
    from rankup.snapshots.saver import Saver
    from rankup.snapshots.state import SnapshotState, Staged

# The assumed duration of a save, as a multiple of the measured one, and of everything else that ending takes (seconds).
CAUTION, LEAVING_S = 3.0, 15.0
# Steps that a save waits for the end of a window of gradients that is accumulated by hand.
WINDOW_PATIENCE = 256
# Of the time of an epoch, or of a loop, which the copy of the state before its last step may cost.
KEEPING_SHARE = 0.01
_LOOP_S = 10.0  # a loop counts as at least so long: its state is copied once
_BYTES_PER_S = 1e9  # a first copy, into new memory


class _Kept(NamedTuple):
    step: int
    staged: Staged


class LoopSaves:
    """Of one run. Without a ``saver`` nothing is saved."""

    def __init__(self, run: RunContext, parts: StateParts, policy: Snapshots, steps: OptimizerSteps) -> None:
        self.saver: Saver | None = None  # of the loop that is running
        self.feed: DataFeed | None = None  # likewise
        self.flat = False  # whether it is ``run.steps``
        self.epochs_since = 0  # that were done since the last save
        # What was saved after the inner loop, by the script, is to be saved again after that code.
        self.again = False
        self._run = run
        self._parts = parts
        self._steps = steps
        self.unit, self.count = policy.interval()
        self._due_after_epoch = False  # a save is due after the code that follows the inner loop
        self.waited = 0  # steps for which a save has waited for the end of a window
        self._saved: object = None  # the position of the run when it was last saved
        self._saved_at = time.monotonic()
        self._kept: _Kept | None = None
        self._keeping_s: float | None = None  # how long the last copy took

    def steps_left(self) -> int | None:
        """Of the epoch, or of the loop if that ends before: at 0 the loop has no batch for a resume. In its flat form
        no code of the script follows an epoch, and the loop alone counts. None if it is not known."""
        feed, loop = self.feed, self._parts.loop
        if feed is None or not loop:
            return None
        epoch, step = feed.position.resume()
        left = [loop["goal"] - feed.position.total] if loop["unit"] == "steps" else []
        if loop["unit"] == "epochs" and epoch >= loop["goal"]:
            return 0  # a sampler must not be asked for an epoch after the last one
        last = loop["unit"] == "epochs" and epoch + 1 >= loop["goal"]
        if feed.steps is not None and (last or not self.flat):
            left.append(feed.steps - step)
        return min(left, default=None)

    # ---------------------------------------------------------------- when due

    def next_step(self) -> int | None:
        """The next step after which a save is due, by a number of steps; None: there is none."""
        if self.saver is None:
            return None
        if self.waited:
            return self._run.global_step + 1
        return (self._run.global_step // self.count + 1) * self.count if self.unit == "step" else None

    def due_at_step(self) -> bool:
        return bool(self.waited) or (self.unit == "step" and self._run.global_step % self.count == 0)

    def due_at_epoch_end(self) -> bool:
        return (
            self._due_after_epoch or self.again or (self.unit == "epoch" and self.epochs_since >= self.count)
        )

    def time_is_up(self) -> bool:
        """By rank 0's clock; all ranks are told when they next agree."""
        return self.unit == "s" and time.monotonic() - self._saved_at >= self.count

    def takes(self) -> float | None:
        """How long stopping takes, in seconds; None if no save was measured yet."""
        whole = self.saver.seconds if self.saver is not None else None
        return None if whole is None else CAUTION * whole + LEAVING_S

    # ------------------------------------------------------------------- saves

    def save(self, *, pending: bool | None = None, outside: bool = False, keep: bool = False) -> bool:
        """Save, unless this position is saved already; whether it did. ``pending``: whether some rank has gradients
        that wait for a step; None to find out. ``outside``: not within the loop, so that a resume does not enter it
        there, and after the code for the epoch the state is saved again. ``keep``: it is never deleted."""
        if self.saver is None or (self._saved == self._position() and not self.again):
            return False
        began = time.perf_counter()
        gradients = self._gradients_wait() if pending is None else pending
        outside |= self.steps_left() == 0  # after which the loop has no batch for a resume
        taken = self._state(gradients=gradients, within=not outside, keep=keep)
        self._kept = None  # its buffers are used now
        self.saver.save(self._run.steps_reached, taken)
        # An optimizer changes its moments, which the save may still be copying.
        self._steps.wait_before_next(self.saver.wait_staged)
        self.note_saved()
        self.restart_clock()
        self.epochs_since = self.waited = 0
        self._due_after_epoch, self.again = False, outside
        self._run.records.saved(time.perf_counter() - began)
        return True

    def save_after_window(self) -> None:
        """Save; later, if gradients that were accumulated by hand wait for a step, or an epoch's steps are done."""
        if self.saver is None:
            return
        if self.steps_left() == 0:
            self._due_after_epoch = True
            return
        pending = self._gradients_wait()
        if pending and not self._steps.never_cleared and self.waited < WINDOW_PATIENCE:
            self.waited += 1
            return
        self.save(pending=pending)

    def keep_state(self, seconds: float, *, last: bool) -> None:
        """Copy the state before the last step of an epoch that has taken ``seconds``, or of the ``last`` one of the
        loop. Not if the copy costs more than a hundredth of that; nor, but for the last, if a save in flight uses the
        memory for it. A collective."""
        if self.saver is None:
            return
        began = time.perf_counter()
        dear = self._estimate() > KEEPING_SHARE * (max(seconds, _LOOP_S) if last else seconds)
        no = dear or not (last or self.saver.idle)
        control = self._run.control
        if control.any("the state before the end of an epoch", no) if control is not None else no:
            return
        taken = self._state(gradients=self._gradients_wait(), within=True, keep=False)
        self._kept = _Kept(self._run.steps_reached, self.saver.stage(taken))
        self._keeping_s = time.perf_counter() - began

    def save_kept(self) -> bool:
        """Save the state before the last step of the epoch; whether there is one."""
        kept, self._kept = self._kept, None
        if kept is None or self.saver is None:
            return False
        self.saver.save(kept.step, kept.staged)
        return True

    def forget_kept(self) -> None:
        self._kept = None

    def end(self) -> None:
        """After the last epoch: save the state before its last step, which a resume enters, and the last one."""
        saver = self.saver
        assert saver is not None
        if self.unit:
            kept, self._kept = self._kept, None
            if kept is not None:
                metadata = {**json.loads(kept.staged.metadata), "keep": True, "done": True}
                saver.save(kept.step, replace(kept.staged, metadata=json.dumps(metadata)))
            self._saved = None
            self.save(outside=True, keep=True)
            self.again = False
        began = time.perf_counter()
        saver.close()
        self._run.records.saved(time.perf_counter() - began)
        self.saver = None

    def note_saved(self) -> None:
        """The newest snapshot has the state at hand."""
        self._saved = self._position()

    def restart_clock(self) -> None:
        self._saved_at = time.monotonic()

    def wait(self) -> None:
        """Until what is being saved is durable; no collective."""
        if self.saver is not None:
            self.saver.wait()

    def release(self) -> None:
        """Other runs may have the directory; no collective."""
        self._kept = None
        if self.saver is not None:
            self.saver.release()
            self.saver = None

    # ------------------------------------------------------------------ inside

    def _state(self, *, gradients: bool, within: bool, keep: bool) -> SnapshotState:
        from rankup.runtime.checkpointing.state import collect_to_save

        if within:
            raise_on_all(self._run.control, "the form of the models", self._parts.forms.look())
            self.check_data()
        taken = collect_to_save(self._run, self._parts, gradients=gradients)
        marks: dict[str, Any] = {"within": within, **({"keep": True} if keep else {})}
        return replace(taken, metadata={**taken.metadata, **marks})

    def check_data(self) -> None:
        """RankupError ``data-changed`` if workers have another data set than a resume would give them. A collective."""
        if self.feed is not None:
            self.feed.check_unchanged(self._run.control, self._run.forgotten)

    def _gradients_wait(self) -> bool:
        """On some rank. A collective."""
        mine = self._steps.gradients_wait()
        control = self._run.control
        return mine if control is None else control.any("the gradients before a save", mine)

    def _estimate(self) -> float:
        if self._keeping_s is None:
            tensors = [tensor for model in self._run.models for tensor in model.parameters()]
            size = 3 * sum(tensor.numel() * tensor.element_size() for tensor in tensors)  # with two moments
            return size / _BYTES_PER_S + 1e-5 * len(tensors)
        return self._keeping_s

    def _position(self) -> object:
        return self._run.steps_reached, [feed.position.resume() for feed in self._run.feeds]
