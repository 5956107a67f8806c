"""What happens around the steps of a loop: resume, save, and stop on request.

Everything here happens between steps, on all ranks. ``run.epochs`` runs inside ``loop`` and calls ``epoch_done`` after
each epoch. An epoch calls ``step_done`` after each step, and ``epoch_trained`` after its last batch. ``run.batches``
uses ``stop_requests`` while it evaluates.

If the code after the inner loop (an evaluation, mostly) is interrupted, the run resumes from the state before that
code: all of it runs again. That state is remembered after the epoch's last batch (``epoch_end.py``), and written only
if it is needed. If the code has changed the weights, it runs to its end first.

A run may have several loops. A loop is another *stage* (pre-training, then fine-tuning) if more has been prepared than
for the loop before. Each stage has a directory of its own, so that a run that is interrupted in its second stage finds
the result of the first one. A run that was interrupted in a later loop of a stage restores its state there once more,
since the code between the loops runs again (``later_loops.py``).
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable, Iterator

from torch.optim import Optimizer

from rankup.errors import RankupError
from rankup.runtime.checkpointing import registered_state
from rankup.runtime.checkpointing.carried.files import warn_of_files
from rankup.runtime.checkpointing.epoch_end import EpochEndState
from rankup.runtime.checkpointing.loop_saves import LoopSaves
from rankup.runtime.checkpointing.loop_variables import IndexedEpoch
from rankup.runtime.checkpointing.open_loops import OpenLoop, warn_of_another_training
from rankup.runtime.checkpointing.outside_loops import OutsideLoops
from rankup.runtime.checkpointing.policy import Snapshots
from rankup.runtime.checkpointing.prefetched_batches import PrefetchedBatches
from rankup.runtime.checkpointing.resume import resume
from rankup.runtime.checkpointing.resumed_epoch import ResumedEpoch
from rankup.runtime.checkpointing.resumed_header import warn_of_enumerate, warn_of_zip
from rankup.runtime.checkpointing.save_place import warn_of_code_after_save
from rankup.runtime.checkpointing.state import StateParts
from rankup.runtime.checkpointing.stop import StopWatch
from rankup.runtime.checkpointing.training_folder import TrainingFolder
from rankup.runtime.checkpointing.untracked_state import UntrackedWatch
from rankup.runtime.context import RunContext
from rankup.runtime.data.batches import DataFeed
from rankup.runtime.distributed.other_optimizers import OtherOptimizers
from rankup.runtime.distributed.replicas import Replicas
from rankup.runtime.tracing.trace import VARIABLE as TRACE_VARIABLE
from rankup.runtime.tracing.trace import Trace
from rankup.snapshots.snapshot import Snapshot


class Checkpointing:
    """Of one run. Without a directory nothing is saved: a request to stop ends the run without a snapshot."""

    def __init__(
        self,
        run: RunContext,
        parts: StateParts,
        replicas: Replicas,
        options: Snapshots | None,
        watch: StopWatch,
    ) -> None:
        self._run = run
        self._parts = parts
        self._replicas = replicas
        self._others = OtherOptimizers(run)
        self._prefetched = PrefetchedBatches(run)
        self._compared = 0  # at which step what is registered was compared last
        in_force = (options or Snapshots()).in_force()
        # Whether the script asks for snapshots; with "off" it asks only for one at a request to stop.
        wanted = options is not None and options.every != "off"
        self._folder = TrainingFolder(run, in_force, wanted=wanted)
        self._saves = LoopSaves(run, parts, in_force)
        self._watch = watch
        self._trace: Trace | None = None
        self._untracked: UntrackedWatch | None = None
        self._resumed: ResumedEpoch | None = None
        # Of what a resume loses. ``rankup verify`` reports it in its own way.
        self._warns = run.world.is_main and TRACE_VARIABLE not in os.environ
        self._outside = OutsideLoops() if wanted and self._warns else None
        self._goes_on = False  # resumed, and no batch yet; on rank 0
        self._open = False  # whether a loop is running
        self._loop = OpenLoop(run.name, warns=self._warns)
        self._goals: dict[
            tuple[int, str], int
        ] = {}  # of loops that came to their end: (feed, unit) → how many
        self._listening = contextlib.ExitStack()
        self._after_inner_loop = False
        self._epoch_end: EpochEndState | None = None
        self._finish_first = False  # the code after the inner loop has changed the state of the epoch's end
        self._said_of_save = False
        watch.takes = self._saves.takes
        watch.save_due = self._saves.time_is_up

    # ------------------------------------------------------- called by the run

    def prepared(self, optimizer: Optimizer | None) -> None:
        if self._outside is not None:
            self._outside.watch(optimizer)

    @contextlib.contextmanager
    def loop(
        self, feed: DataFeed, unit: str, goal: int, epoch: Callable[[int], IndexedEpoch]
    ) -> Iterator[bool]:
        """Around a loop over ``goal`` epochs or steps (``unit``): resume before the first step, save after the last.

        ``epoch`` makes the epoch with a number. Gives whether the loop trains: not if it was left by a break before
        the snapshot that the run resumes from.
        """
        self._check_loop(feed, unit, goal)
        self._open = True
        self._saves.feed = feed
        # A loop that a variable holds is closed when the interpreter ends, when modules are gone already.
        atexit.register(self._let_go)
        unregister = atexit.unregister
        try:
            self._begin(feed, unit, goal, epoch)
            if (trace := Trace.from_environment(self._run, self._saves.wait)) is not None:
                self._trace = self._listening.enter_context(trace)
            left = self._parts.later.left()
            yield not left
            self._end()
            if self._trace is not None:
                self._trace.end()
            if not left:
                self._goals[id(feed), unit] = goal
        except GeneratorExit:  # a break
            self._parts.later.ended_by_break()
            if self._trace is not None:
                self._trace.left()
            raise
        finally:
            unregister(self._let_go)
            self._let_go()

    def _let_go(self) -> None:
        """After a loop, also one left by a break or an error: release the directory. No collective."""
        self._open = False
        self._listening.close()
        self._saves.release()

    def _check_loop(self, feed: DataFeed, unit: str, goal: int) -> None:
        if self._open:
            raise RankupError(
                "two-loops",
                "a loop over run.steps or run.epochs begins while another one of this run is not finished",
                hint="to train on two data sets at once prepare one that yields both "
                "(torch.utils.data.StackDataset); a loop held by a name is left by its close()",
                exit_code=1,
            )
        if goal <= self._goals.get((id(feed), unit), 0):
            raise RankupError(
                "trained-already",
                f"a loop over {goal} {unit} of data that has been trained for {self._goals[id(feed), unit]} {unit}: "
                f"{unit}= counts from the beginning, and nothing would be trained",
                hint="for epoch in run.epochs(n): for batch in epoch: …   # what follows the inner loop runs once per "
                "epoch",
                exit_code=1,
            )

    def _begin(self, feed: DataFeed, unit: str, goal: int, epoch: Callable[[int], IndexedEpoch]) -> None:
        """Everything is prepared and registered by now."""
        if self._outside is not None:
            self._outside.end()
        self._resumed = None
        self._after_inner_loop = self._finish_first = False  # an earlier loop may have been left there
        self._epoch_end = None
        self._listening.enter_context(self._watch.listening())
        if self._run.directory is not None and self._run.world.is_main:
            self._run.directory.listening.touch()
            self._listening.callback(self._run.directory.listening.unlink, missing_ok=True)
        self._parts.pending.watch(self._listening)
        registered_state.check_whole(self._run)
        self._replicas.watch(self._listening)
        self._others.watch(self._listening)
        self._prefetched.watch(self._listening)
        begins = self._folder.begin_stage()
        later = self._parts.later
        later.begin(feed, unit, goal, stage=begins)
        self._parts.variables.begin(epoch)
        self._parts.note_begin(self._run)
        self._parts.settings.note_begin()
        first = not self._folder.begun
        saver = self._saves.saver = self._folder.open()
        if saver is None:
            self._parts.carried.begin(warn=self._warns, saves=False)
            return
        self._loop.begin(first=first)
        self._listening.callback(self._loop.end)
        # Read now, and not at the first save: it reads samples, and a data set may count these.
        _ = self._parts.settings.in_force
        for optimizer in self._run.optimizers:
            if hasattr(optimizer, "register_step_pre_hook"):
                hook = optimizer.register_step_pre_hook(self._saves.before_step)
                self._listening.callback(hook.remove)
        if begins:  # a second loop of a stage continues from the first one's end
            found = saver.newest()
            if found is not None:
                self._resume(found)
                later.resumed(found)
                if self._warns:
                    if later.complete() and not self._run.name and self._parts.of_another_training():
                        warn_of_another_training(found.path.name)
                    warn_of_files(found.path.name, stopped=found.metadata.get("stopped", False))
        elif (found := later.again()) is not None:
            self._resume(found, again=True)
        self._parts.carried.begin(warn=self._warns, saves=True)
        self._saves.restart_clock()
        if self._untracked is None and self._warns:
            self._untracked = UntrackedWatch(self._run, self._parts.plain)

    def _resume(self, found: Snapshot, *, again: bool = False) -> None:
        resume(self._run, self._parts, found, again=again)
        self._saves.note_saved()
        self._goes_on = self._run.world.is_main
        if self._saves.feed is not None and self._saves.feed.position.step > 0:
            self._resumed = ResumedEpoch(self._run, self._parts.plain)

    def step_done(self) -> None:
        """Between two steps."""
        self._run.global_step = self._run.steps_reached
        self._parts.variables.step_done()
        if self._saves.saver is not None:
            self._loop.step_done()
        self._replicas.step_done()
        self._prefetched.step_done()
        if self._untracked is not None:
            self._untracked.step_done()
            self._parts.carried.step_done()
        if self._trace is not None:
            self._trace.step()
        if self._watch.requested():
            self.save_and_exit()
        elif (
            self._watch.save_agreed()
            or self._saves.due_at_step()
            or (self._trace is not None and self._trace.save_due)
        ):
            self._saves.save_after_window()

    def stop_requests(self, steps: int | None) -> Iterator[bool]:
        """For an evaluation of ``steps`` global batches: each ``next`` tells whether to ``save_and_exit``.

        An evaluation in the middle of a training step is not interrupted.
        """
        for _ in range(steps or 0):
            if self._trace is not None:
                self._trace.evaluation()
            yield self._watch.requested() and self._run.batch is None

    def epoch_trained(self, *, alone: bool = False) -> None:
        """The epoch's last batch is trained, and the code after the inner loop is next. ``alone``: after a break or an
        error, which other ranks may not have: no collective."""
        self._run.nan_watch.ask()
        self._prefetched.epoch_trained()
        self._parts.plain.note_lists()
        if not alone:
            self._restore_variables()  # of a stream, whose end is known now
            self._replicas.compare_weights()
            if self._untracked is not None:
                self._untracked.warn_of_orders()
        if self._saves.saver is not None:
            self._epoch_end = EpochEndState(self._saves.state(alone=alone))
        self._after_inner_loop = True

    def epoch_begins(self) -> None:
        """The first batch of an epoch is next, or the first one after a resume."""
        if self._resumed is not None:
            self._resumed.check()
            self._resumed = None
        self._parts.plain.check_orders()
        self._prefetched.epoch_begins()
        if self._untracked is not None:
            self._untracked.epoch_begins()
        feed = self._saves.feed
        done = feed.position.step if feed is not None else 0
        at_end = feed is not None and feed.steps is not None and done >= feed.steps
        if at_end:
            self._restore_variables()
        self._parts.carried.epoch_begins(done)
        if self._goes_on:
            self._goes_on = False
            self._parts.later.goes_on()
            if not at_end:
                warn_of_enumerate(self._run.global_step, done)
                warn_of_zip(self._run.global_step, done)
        if self._trace is not None:
            self._trace.epoch_begins()

    def epoch_done(self) -> None:
        """The code after the inner loop has run; the position is that of the next epoch."""
        if self._trace is not None:
            self._trace.behind()
        self._prefetched.epoch_done()
        if self._untracked is not None:
            self._untracked.warn()
            self._parts.carried.warn_of_changed()
        self._after_inner_loop = self._finish_first = False
        self._epoch_end = None
        self._compare_ranks()
        self._saves.epochs_since += 1
        if self._watch.requested():
            self.save_and_exit()
        elif self._saves.due_at_epoch_end():
            self._saves.save()

    def _compare_ranks(self) -> None:
        """What no save may ever compare: what is registered, and what other optimizers train. A collective, after the
        script's code for the epoch, which may have made it the same on all ranks."""
        if self._compared != self._run.global_step:
            self._compared = self._run.global_step
            registered_state.compare(self._run)
            self._others.compare()

    def save_now(self) -> None:
        """Save, and wait until the snapshot is durable; also before the first and after the last epoch."""
        self._folder.wanted = True
        opened = None if self._saves.saver is not None else self._folder.open()
        saver = self._saves.saver = self._saves.saver or opened
        if saver is None:
            return
        try:
            found = self._parts.later.saves() if not self._open else None
            if found is not None:
                resume(self._run, self._parts, found, again=True)
                self._saves.note_saved()
            elif self._saves.save():
                # A resume begins with the next epoch: a request to stop waits for the rest of the code after the loop.
                self._epoch_end = None
                if self._open and self._after_inner_loop:
                    self._finish_first = True
                    if self._warns and not self._said_of_save:
                        self._said_of_save = warn_of_code_after_save()
            saver.wait()
        finally:
            if opened is not None:
                self._saves.release()

    def _end(self) -> None:
        """After the last epoch."""
        self._restore_variables()
        self._parts.variables.note_end(self._parts.later.number)
        self._replicas.compare_weights()
        self._compare_ranks()
        if self._saves.saver is not None:
            self._saves.end()
            self._folder.done()

    def save_and_exit(self) -> None:
        """Save, and end the process with code 0. Returns if the code after the inner loop has already changed the
        weights: that code runs to its end first, and ``epoch_done`` calls this again."""
        saver = self._saves.saver
        if saver is not None:
            if self._after_inner_loop and self._epoch_end is not None:
                if not self._all(self._epoch_end.unchanged()):
                    self._epoch_end = None
                    self._finish_first = True
                    return
                saver.save(self._run.steps_reached, self._epoch_end.state)
            elif self._after_inner_loop and self._finish_first:
                return
            else:
                self._parts.stopped = True
                self._saves.save()
            saver.close()
        self._parts.later.stopped()
        self._run.print(f"stopped as asked after step {self._run.global_step}")
        raise SystemExit(0)

    def _restore_variables(self) -> None:
        if lacking := self._parts.variables.restore(self._parts.later.number):
            self._run.print(
                f"the snapshot cannot hold the value of {', '.join(lacking)}: after this resume the loop does not run, "
                "and the code after it finds no value, or the one from before the loop"
            )

    def _all(self, mine: bool) -> bool:
        """Whether ``mine`` is True on all ranks. A collective."""
        return mine if self._run.control is None else not self._run.control.any("the end of a run", not mine)
