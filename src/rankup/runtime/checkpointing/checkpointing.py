"""What happens around the steps of a loop: resume, save, and stop on request.

Everything here happens between steps, on all ranks. ``run.epochs`` runs inside ``loop``. An epoch calls ``attend``
after a step when that is ``due``, and ``epoch_trained`` after its last batch; the loop calls ``epoch_done`` when the
script's code for the epoch has run. ``run.batches`` uses ``stop_requests`` while it evaluates.

A resume enters the loop: the script runs from its first line, and each of its loops gives its next batch. So nothing of
the script has to be restored but what it declared, and what follows a loop finds its variables. A loop that is done
gives its last step again, from the state before it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rankup.core.whole_lines import say
from rankup.errors import RankupError
from rankup.runtime.checkpointing import registered_state
from rankup.runtime.checkpointing.policy import Snapshots
from rankup.runtime.checkpointing.saves import LoopSaves
from rankup.runtime.checkpointing.stages import Stages
from rankup.runtime.checkpointing.state_parts import StateParts
from rankup.runtime.checkpointing.stop import StopWatch
from rankup.runtime.context import TRACE_VARIABLE, RunContext
from rankup.runtime.data.batches import DataFeed
from rankup.runtime.data.identity import SameDataCheck
from rankup.runtime.distributed.control import raise_on_all
from rankup.runtime.distributed.replicas import Replicas
from rankup.runtime.loop.optimizer_steps import OptimizerSteps
from rankup.runtime.records.logged_numbers import warn_of_logged

if TYPE_CHECKING:
    from rankup.runtime.checkpointing.resume import ResumedEpoch
    from rankup.runtime.tracing.trace import Trace
    from rankup.snapshots.saver import Saver

_CHECKED = 64  # steps of a loop within which looks ask whether what is registered can be saved


class Checkpointing:
    """Of one run. Without a directory nothing is saved: a request to stop ends the run without a snapshot."""

    def __init__(
        self,
        run: RunContext,
        parts: StateParts,
        steps: OptimizerSteps,
        same_data: SameDataCheck,
        options: Snapshots | None,
        watch: StopWatch,
    ) -> None:
        #: The step of the run after which ``attend`` is to be called. Only what all ranks have agreed on moves it.
        self.due = 0
        self._run = run
        self._parts = parts
        self._steps = steps
        self._same_data = same_data
        self._replicas = Replicas(run, steps)
        in_force = (options or Snapshots()).in_force()
        # Whether the script asks for snapshots; with "off" it asks only for one at a request to stop.
        wanted = options is not None and options.every != "off"
        self.every = in_force.every
        self._lost = in_force.lost or ""
        self._stages = Stages(run, in_force, wanted=wanted)
        self._saves = LoopSaves(run, parts, in_force, steps)
        self._watch = watch
        self._trace: Trace | None = None
        self._open = False  # whether a loop is running
        self._replays = False  # whether it was done in an earlier attempt, and gives its last step again
        self._listening = contextlib.ExitStack()
        self._after_inner_loop = False
        # Steps of the run: of the next look at ranks and values, and of the last call.
        self._look_at = self._attended = 0
        self._epochs = 0  # of the loop in this attempt
        self._compared = 0  # at which step what is registered was compared last
        self._begun_at = 0.0
        self._said_logged = self._said_differing = False
        self._resumed: ResumedEpoch | None = None
        self._goes_on = ""  # what to say if a batch follows
        watch.takes = self._saves.takes
        watch.save_due = self._saves.time_is_up
        watch.on_signal = self._attend_now

    # ------------------------------------------------------- called by a loop

    @contextlib.contextmanager
    def loop(self, feed: DataFeed, unit: str, goal: int, *, flat: bool) -> Iterator[bool]:
        """Around a loop over ``goal`` epochs or steps (``unit``): resume before the first step, save after the last.
        ``flat``: whether no code of the script follows each epoch.

        Gives whether the loop was done in an earlier attempt, so that its last step is a repetition."""
        if self._open:
            raise RankupError(
                "two-loops",
                "a loop over run.steps or run.epochs begins while another one of this run is not finished",
                hint="to train on two data sets at once prepare one that yields both "
                "(torch.utils.data.StackDataset); a loop held by a name is left by its close()",
                exit_code=1,
            )
        self._stages.begin(feed)
        self._open = True
        # A loop that a variable holds is closed when the interpreter ends, when modules are gone already.
        atexit.register(self._let_go)
        unregister = atexit.unregister
        try:
            self._saves.feed, self._saves.flat = feed, flat
            self._begin(feed, unit, goal)
            if TRACE_VARIABLE in os.environ:
                from rankup.runtime.tracing.trace import Trace

                trace = Trace(self._run, Path(os.environ[TRACE_VARIABLE]), self._saves.wait)
                self._trace = self._listening.enter_context(trace)
            self._set_due()
            yield self._replays
            self._end()
            if self._trace is not None:
                self._trace.end()
            if self._watch.stopping:
                self.save_and_exit()
        except GeneratorExit:  # a break
            if self._trace is not None:
                self._trace.left()
            raise
        finally:
            unregister(self._let_go)
            self._let_go()

    def _let_go(self) -> None:
        """After a loop, also one left by a break or an error: release the directory. No collective."""
        self._open = self._after_inner_loop = False
        self._trace = None
        self._replicas.close()
        self._listening.close()
        self._saves.release()

    def _begin(self, feed: DataFeed, unit: str, goal: int) -> None:
        """Everything is prepared and registered by now."""
        run, parts = self._run, self._parts
        self._replays = self._after_inner_loop = False
        self._resumed, self._epochs = None, 0
        self._begun_at = time.monotonic()
        self._listening.enter_context(self._watch.listening())
        if run.directory is not None and run.world.is_main:
            run.directory.listening.touch()
            self._listening.callback(run.directory.listening.unlink, missing_ok=True)
        registered_state.loop_begins(run)
        registered_state.check(run)
        self._steps.begin(self._listening)
        parts.note_begin(run)
        parts.settings.begin()
        parts.loop = {"unit": unit, "goal": goal}
        saver = self._saves.saver = self._stages.open()
        if saver is not None:
            parts.forms.begin()
            _ = parts.settings.in_force  # read now, and not at the first save: it reads samples
            main = run.world.is_main
            if parts.watch is None and (main or run.strategy.exact == "any-world"):
                from rankup.runtime.unregistered.watch import UnregisteredWatch

                parts.watch = UnregisteredWatch(
                    lambda: registered_state.declared(run),
                    lambda: registered_state.whole_things(run),
                    run.forgotten,
                    self._lost,
                    speaks=main,
                )
            if parts.watch is not None:
                parts.watch.begin()
            self._resume(saver, feed, unit, goal)
        self._look_at = run.global_step + 1
        self._attended = run.global_step
        self._replicas.look()
        self._saves.restart_clock()

    def _resume(self, saver: Saver, feed: DataFeed, unit: str, goal: int) -> None:
        """From the newest snapshot that was taken within the loop; without one from the newest of all, after which a
        loop that was left by a break goes on, and one that was done gives nothing."""
        found = saver.newest(lambda metadata: bool(metadata.get("within"))) or saver.newest()
        if found is None:
            return
        from rankup.runtime.checkpointing.resume import ResumedEpoch, resume
        from rankup.runtime.checkpointing.resumed_loop import (
            is_done,
            outside_of_loop,
            warn_of_another_loop,
            warn_of_another_training,
        )

        resume(self._run, self._parts, found, feed)
        self._saves.note_saved()
        if feed.position.step > 0 and not self._saves.flat:
            self._resumed = ResumedEpoch(self._run)
        self._replays = is_done(found, unit, goal)
        position = feed.position
        if self._parts.watch is not None and self._run.world.is_main:
            self._parts.watch.resumed(found.first_rank_state(), position.epoch, position.step)
        done = position.epoch >= goal if unit == "epochs" else position.total >= goal
        if self._run.world.is_main:
            if self._replays and not self._run.name:
                warn_of_another_training(found, self._parts.begun)
            warn_of_another_loop(found, unit, goal, done)
            self._goes_on = "" if done else outside_of_loop(found)

    def attend(self) -> None:
        """Between two steps, after step ``due``."""
        step = self._run.global_step
        passed, self._attended = step - self._attended, step
        if step >= self._look_at:
            self._look()
        if self._trace is not None:
            self._trace.step()
        if self._watch.requested(passed):
            self.save_and_exit()
        elif self._replays:
            pass
        elif (
            self._watch.save_agreed()
            or self._saves.due_at_step()
            or (self._trace is not None and self._trace.save_due)
        ):
            self._saves.save_after_window()
        if self._saves.steps_left() == 1:
            self._saves.check_data()
            self._keep_state()
        if self._look_at == step + 1:
            self._replicas.look()
        self._set_due()

    def _look(self) -> None:
        """At steps 1, 2, 4, 8, … of a loop: whether ranks hold one model, and what changes and was not declared."""
        run, watch, feed = self._run, self._parts.watch, self._saves.feed
        done = run.records.loop_steps
        self._look_at = run.global_step + (done if self._replicas.compare_gradients() else 1)
        self._saves.check_data()
        if self._saves.saver is None or self._replays:
            return
        error = None
        try:
            if done <= _CHECKED:  # a state may be large
                registered_state.check(run)
        except RankupError as unsaveable:
            error = unsaveable
        if error is None and watch is not None and run.batch is not None and feed is not None:
            error = watch.look(run.batch.value, feed.position.epoch) or watch.say()
        if self._saves.steps_left() != 0:  # what the last step changes, a resume changes again
            error = error or self._parts.forms.look()
        self._raise_on_all(error)

    def _set_due(self) -> None:
        """The next step after which something may be due."""
        step = self._run.global_step
        candidates = [self._look_at, step + max(1, self._watch.calls_left)]
        if self._look_at - 1 > step:
            candidates.append(self._look_at - 1)  # from where on the gradients of its step are looked at
        if self._trace is not None:
            candidates.append(step + 1)
        if (save := self._saves.next_step()) is not None:
            candidates.append(save)
        if (left := self._saves.steps_left()) is not None and left > 1:
            candidates.append(step + left - 1)
        self.due = min(candidates)

    def _attend_now(self) -> None:
        self.due = 0
        self._run.portion.cut()

    def _keep_state(self) -> None:
        if self._replays or self._saves.saver is None:
            return
        feed, loop = self._saves.feed, self._parts.loop
        assert feed is not None
        ends = feed.position.epoch + 1 >= loop["goal"] if loop["unit"] == "epochs" else True
        whole = time.monotonic() - self._begun_at
        self._saves.keep_state(whole if ends else self._run.records.epoch_seconds, last=ends)

    # -------------------------------------------------------------- of an epoch

    def epoch_begins(self) -> None:
        """The first batch of an epoch is next, or the first one after a resume."""
        feed = self._saves.feed
        if self._resumed is not None and feed is not None:
            self._resumed.begin(feed.position.step)
            self._resumed = None
        if self._goes_on:
            say(self._goes_on)
            self._goes_on = ""
        if self._saves.saver is not None and not self._saves.flat and self._parts.watch is not None:
            self._parts.watch.epoch_begins()
        if feed is not None:
            self._saves.check_data()  # persistent workers are those of the epoch before
            self._same_data.check_epoch(feed)
            if self._saves.steps_left() == 1:
                self._keep_state()
        if self._trace is not None:
            self._trace.epoch_begins()

    def epoch_trained(self, *, alone: bool = False) -> None:
        """The epoch's last batch is trained, and the code after the inner loop is next. ``alone``: after a break or an
        error, which other ranks may not have: no collective."""
        self._run.nan_watch.ask()
        if not alone:
            self._replicas.compare_weights()
        else:
            self._saves.forget_kept()
        if self._parts.watch is not None:
            self._parts.watch.sums.end()
        self._after_inner_loop = True

    def epoch_done(self, *, last: bool) -> None:
        """The code after the inner loop has run; the position is that of the next epoch. ``last``: of the loop."""
        if self._trace is not None:
            self._trace.behind()
        self._after_inner_loop = False
        self._compare_ranks()
        self._epochs += 1
        # At epochs 1, 2, 4, 8, … of this attempt: an epoch may take milliseconds.
        if self._epochs.bit_count() == 1 and self._saves.saver is not None and not self._replays:
            error = self._noted_by_epoch()
            self._raise_on_all(error if error or last else self._parts.forms.look())
        self._saves.epochs_since += 1
        requested = self._watch.requested()
        if last:  # the loop's end saves
            return
        self._saves.forget_kept()
        if requested:
            self.save_and_exit()
        elif self._saves.due_at_epoch_end():
            self._saves.save()
        self._set_due()

    def _noted_by_epoch(self) -> RankupError | None:
        watch = self._parts.watch
        if watch is None:
            return None
        noted = watch.now()
        control = self._run.control
        if control is not None and self._run.strategy.exact == "any-world" and not self._said_differing:
            from rankup.runtime.unregistered.cures import differing

            # Each rank counts its own virtual shards.
            mine = {path: digest for path, (digest, *_) in noted.items()}
            said = differing(control.gather("the values that no snapshot holds", mine))
            self._said_differing = bool(said)
            if said and self._run.world.is_main:
                say(f"warning: {said}")
        return watch.say()

    def _compare_ranks(self) -> None:
        """What no save may ever compare: what is registered. A collective, after the script's code for the epoch, which
        may have made it the same on all ranks."""
        if self._compared != self._run.global_step:
            self._compared = self._run.global_step
            registered_state.compare(self._run)
            if not self._said_logged:
                self._said_logged = warn_of_logged(self._run.metrics, self._run.control, self._run.world.rank)

    def _raise_on_all(self, error: RankupError | None) -> None:
        raise_on_all(self._run.control, "the look at values that no snapshot holds", error)

    # ------------------------------------------------------------ saves and stops

    def stop_requests(self, steps: int | None) -> Iterator[bool]:
        """For an evaluation of ``steps`` global batches: each ``next`` tells whether to ``save_and_exit``.

        An evaluation in the middle of a training step is not interrupted.
        """
        for _ in range(steps or 0):
            if self._trace is not None:
                self._trace.evaluation()
            yield self._watch.requested() and self._run.batch is None

    def save_now(self) -> None:
        """Save, and wait until the snapshot is durable; also before the first and after the last epoch."""
        self._stages.wanted = True
        opened = None if self._saves.saver is not None else self._stages.open()
        saver = self._saves.saver = self._saves.saver or opened
        if saver is None:
            return
        try:
            if not self._replays:
                self._saves.save(outside=not self._open or self._after_inner_loop)
            saver.wait()
        finally:
            if opened is not None:
                self._saves.again = False
                self._saves.release()

    def _end(self) -> None:
        """After the last epoch."""
        self._replicas.compare_weights()
        self._compare_ranks()
        if self._saves.saver is None:
            return
        if self._parts.watch is not None:
            self._parts.watch.end()
        if self._replays:
            self._saves.saver.close()
            self._saves.saver = None
        else:
            self._saves.end()
        self._stages.done()

    def save_and_exit(self) -> None:
        """Save, and end the process with code 0. After an epoch's last step that is the state before this step; if it
        was not kept, the run goes on from its last save. Returns if the script's code for the epoch has not begun, or
        if it is what the first save waits for: ``epoch_done`` calls this again."""
        saver = self._saves.saver
        if saver is not None:
            if self._after_inner_loop or self._saves.steps_left() == 0:
                waits = not self._after_inner_loop or not self._saves.unit
                if not self._saves.save_kept() and waits and not self._replays:
                    return
            elif not self._replays:
                self._saves.save()
            saver.close()
        self._run.print(f"stopped as asked after step {self._run.global_step}")
        raise SystemExit(0)
