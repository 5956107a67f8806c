"""A run that survives: it resumes by itself, saves as it goes, and when it is told to stop saves, says so and ends.

Everything here happens between steps, on all ranks alike. ``run.epochs`` stands inside ``loop``, and calls
``epoch_done`` after each; an epoch calls ``step_done`` after each step, and ``epoch_trained`` when its batches are
through; ``run.batches`` ``asks`` as it evaluates.

Where the code behind the inner loop is interrupted (an evaluation, mostly), the state to go on from is that of the
moment before it began, so that all of it runs again, and none of it twice: that state is held when the epoch's
batches are through (``epoch_end.py``), and written only if it is needed. Where that code has changed the weights, it is
carried out to its end first.

A run may have several loops. One that begins when more has been prepared than for the one before is another *stage*
(pre-training, then fine-tuning): it has a directory of its own, so that a run that is interrupted in its second stage
finds what the first one ended with.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Iterator

from rankup.errors import RankupError
from rankup.runtime.checkpointing import registered_state
from rankup.runtime.checkpointing.epoch_end import EpochEndState
from rankup.runtime.checkpointing.loop_saves import LoopSaves
from rankup.runtime.checkpointing.policy import Snapshots
from rankup.runtime.checkpointing.resume import resume
from rankup.runtime.checkpointing.state import StateParts
from rankup.runtime.checkpointing.stop import StopWatch
from rankup.runtime.checkpointing.training_folder import TrainingFolder
from rankup.runtime.checkpointing.untracked_state import UntrackedWatch
from rankup.runtime.context import RunContext
from rankup.runtime.data.batches import DataFeed
from rankup.runtime.distributed.replicas import Replicas
from rankup.runtime.tracing.trace import VARIABLE as TRACE_VARIABLE
from rankup.runtime.tracing.trace import Trace


class Checkpointing:
    """Of one run. Without a directory it only listens: a request to stop ends the run without a snapshot."""

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
        in_force = (options or Snapshots()).in_force()
        # Whether the script asks for snapshots; "off" asks for none but at a request to stop.
        wanted = options is not None and options.every != "off"
        self._folder = TrainingFolder(run, in_force, wanted=wanted)
        self._saves = LoopSaves(run, parts, in_force)
        self._watch = watch
        self._trace: Trace | None = None
        self._untracked: UntrackedWatch | None = None
        self._open = False  # whether a loop is running
        self._goals: dict[
            tuple[int, str], int
        ] = {}  # of loops that came to their end: (feed, unit) → how many
        self._listening = contextlib.ExitStack()
        self._behind_the_loop = False
        self._held: EpochEndState | None = None
        self._finish_first = False  # the code behind the inner loop has changed what was held
        watch.takes = self._saves.takes
        watch.save_due = self._saves.time_is_up

    # ------------------------------------------------------- called by the run

    @contextlib.contextmanager
    def loop(self, feed: DataFeed, unit: str, goal: int) -> Iterator[None]:
        """Around a loop over ``goal`` epochs or steps (``unit``): resume before the first step, save after the last."""
        self._check_loop(feed, unit, goal)
        self._open = True
        self._saves.feed = feed
        # A loop that a name holds is closed when the interpreter ends, where modules are gone already.
        atexit.register(self._let_go)
        unregister = atexit.unregister
        try:
            self._begin()
            if (trace := Trace.from_environment(self._run, self._saves.wait)) is not None:
                self._trace = self._listening.enter_context(trace)
            yield
            self._end()
            if self._trace is not None:
                self._trace.end()
            self._goals[id(feed), unit] = goal
        except GeneratorExit:  # a break
            if self._trace is not None:
                self._trace.left()
            raise
        finally:
            unregister(self._let_go)
            self._let_go()

    def _let_go(self) -> None:
        """Of a loop that is over, or was left by a break or an error: no collective, and the directory is free for
        others."""
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

    def _begin(self) -> None:
        """Everything is prepared and registered by now."""
        self._behind_the_loop = self._finish_first = False  # a loop before may have been left there
        self._held = None
        self._listening.enter_context(self._watch.listening())
        if self._run.directory is not None and self._run.is_main:
            self._run.directory.listening.touch()
            self._listening.callback(self._run.directory.listening.unlink, missing_ok=True)
        self._parts.pending.watch(self._listening)
        registered_state.check_whole(self._run)
        self._replicas.watch(self._listening)
        begins = self._folder.begin_stage()
        if begins:
            self._parts.frozen.begin()
        self._parts.settings.note_begin()
        saver = self._saves.saver = self._folder.open()
        if saver is None:
            return
        # Looked up now, and not at the first save: it reads samples, and a data set may count what is read of it.
        _ = self._parts.settings.in_force
        for optimizer in self._run.optimizers:
            if hasattr(optimizer, "register_step_pre_hook"):
                hook = optimizer.register_step_pre_hook(self._saves.before_step)
                self._listening.callback(hook.remove)
        if begins:  # a second loop of a stage goes on where the first one ended
            found = saver.newest()
            if found is not None:
                resume(self._run, self._parts, found)
                self._saves.note_saved()
        self._saves.restart_clock()
        if self._untracked is None and self._run.is_main and TRACE_VARIABLE not in os.environ:
            self._untracked = UntrackedWatch(self._run)

    def step_done(self) -> None:
        """Between two steps."""
        self._run.global_step = self._run.steps_reached
        self._replicas.step_done()
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

    def asked(self, steps: int | None) -> Iterator[bool]:
        """For an evaluation of ``steps`` global batches: each ``next`` asks whether to ``save_and_exit``.

        One that stands in the middle of a training step is not interrupted.
        """
        for _ in range(steps or 0):
            if self._trace is not None:
                self._trace.evaluation()
            yield self._watch.requested() and self._run.batch is None

    def epoch_trained(self, *, alone: bool = False) -> None:
        """The epoch's batches are through, and what stands behind the inner loop begins. ``alone``: after a break or an
        error, of which other ranks may know nothing."""
        self._run.nan_watch.ask()
        if not alone:
            self._replicas.compare_weights()
        if self._saves.saver is not None:
            self._held = EpochEndState(self._saves.state(alone=alone))
        self._behind_the_loop = True

    def epoch_begins(self) -> None:
        """The first batch of an epoch is next, or of what a resume has left of it."""
        if self._trace is not None:
            self._trace.epoch_begins()

    def epoch_done(self) -> None:
        """What stands behind the inner loop is through as well; the position is that of the next epoch."""
        if self._trace is not None:
            self._trace.behind()
        if self._untracked is not None:
            self._untracked.warn()
        self._behind_the_loop = self._finish_first = False
        self._held = None
        self._saves.epochs_since += 1
        registered_state.warn_unused(self._run)
        if self._watch.requested():
            self.save_and_exit()
        elif self._saves.due_at_epoch_end():
            self._saves.save()

    def save_now(self) -> None:
        """Save, and wait until it is durable; before the first and after the last epoch, too."""
        self._folder.wanted = True
        opened = None if self._saves.saver is not None else self._folder.open()
        saver = self._saves.saver = self._saves.saver or opened
        if saver is None:
            return
        try:
            if self._saves.save():
                self._held = None
            saver.wait()
        finally:
            if opened is not None:
                self._saves.release()

    def _end(self) -> None:
        """After the last epoch: its state is saved, so that a run that is done begins no epoch again."""
        self._replicas.compare_weights()
        if self._saves.saver is not None:
            self._saves.end()
            self._folder.done()

    def save_and_exit(self) -> None:
        """Save what there is, and end the process well. It returns where the code behind an epoch's inner loop has
        changed the weights already: that code is to end first, and ``epoch_done`` asks again."""
        saver = self._saves.saver
        if saver is not None:
            if self._behind_the_loop and self._held is not None:
                if not self._all(self._held.unchanged()):
                    self._held = None
                    self._finish_first = True
                    return
                saver.save(self._run.steps_reached, self._held.state)
            elif self._behind_the_loop and self._finish_first:
                return
            else:
                self._saves.save()
            saver.close()
        self._run.print(f"stopped as asked after step {self._run.global_step}")
        raise SystemExit(0)

    def _all(self, mine: bool) -> bool:
        """Whether it holds on all ranks. A collective."""
        return mine if self._run.control is None else not self._run.control.any("the end of a run", not mine)
