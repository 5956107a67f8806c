"""A run that survives: it resumes by itself, saves as it goes, and when it is told to stop saves, says so and ends.

Everything here happens between steps, on all ranks alike. ``run.epochs`` stands inside ``loop``, and calls
``epoch_done`` after each; an epoch calls ``step_done`` after each step, and ``epoch_trained`` when its batches are
through; ``run.batches`` ``asks`` as it evaluates.

Where the code behind the inner loop is interrupted (an evaluation, mostly), the state to go on from is that of the
moment before it began, so that all of it runs again, and none of it twice: that state is copied when the epoch's
batches are through, and written only if it is needed.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rankup.core.units import parse_duration
from rankup.errors import RankupError
from rankup.runtime import buffers, state
from rankup.runtime.registered_state import warn_unused
from rankup.runtime.stop import StopWatch
from rankup.runtime.trace import Trace
from rankup.snapshots.found import Found
from rankup.snapshots.prune import Keep
from rankup.snapshots.saver import Saver
from rankup.snapshots.state import State
from rankup.strategies import state as by_name

if TYPE_CHECKING:
    from rankup.runtime.run import Run

# How much longer than measured a save may take before it is too late, and what an end costs besides (seconds).
CAUTION, LEAVING_S = 3.0, 15.0
# What the environment says holds before what the script says: ``rankup verify`` saves often, and elsewhere.
EVERY_VARIABLE, DIRECTORY_VARIABLE = "RANKUP_SNAPSHOT_EVERY", "RANKUP_SNAPSHOT_DIR"


@dataclass(frozen=True)
class Snapshots:
    """When to save and what to keep. ``every``: ``"10m"``, ``"500 steps"``, ``"2 epochs"``, or ``"off"``: only when
    told to stop. ``directory``: default is ``snapshots`` in the run directory; without either nothing is saved.

    RANKUP_SNAPSHOT_EVERY and RANKUP_SNAPSHOT_DIR in the environment hold before what is said here."""

    every: str = "10m"
    keep: Keep = field(default_factory=Keep)
    asynchronous: bool = True
    directory: str | Path | None = None

    def __post_init__(self) -> None:
        self.interval()

    def in_force(self) -> Snapshots:
        """These, but for what the environment says."""
        every, directory = os.environ.get(EVERY_VARIABLE), os.environ.get(DIRECTORY_VARIABLE)
        return replace(
            self, every=every or self.every, directory=Path(directory) if directory else self.directory
        )

    def interval(self) -> tuple[str, int]:
        """("s" | "step" | "epoch" | "", how many)."""
        if self.every == "off":
            return "", 0
        counted = re.fullmatch(r"(\d+) ?(step|epoch)s?", self.every)
        if counted and int(counted[1]) > 0:
            return counted[2], int(counted[1])
        try:
            return "s", parse_duration(self.every)
        except ValueError:
            raise RankupError(
                "bad-interval",
                f"snapshots every {self.every!r} cannot be",
                hint="10m, 500 steps, 2 epochs or off",
            ) from None


class Survival:
    """Of one run. Without a directory it only listens: a request to stop ends the run without a snapshot."""

    def __init__(self, run: Run, options: Snapshots, watch: StopWatch) -> None:
        self._run = run
        self._options = options.in_force()
        self._watch = watch
        self._trace: Trace | None = None
        self._unit, self._count = self._options.interval()
        self._saver: Saver | None = None
        self._listening = contextlib.ExitStack()
        self._begun = False
        self._saved: object = None  # where the run was when it was last saved
        self._saved_at = time.monotonic()
        self._epochs_since = 0
        self._behind_the_loop = False
        watch.takes = self._takes
        watch.save_due = self._time_is_up

    # ------------------------------------------------------- called by the run

    @contextlib.contextmanager
    def loop(self) -> Iterator[None]:
        """Around a loop over epochs: resume before the first one, save after the last."""
        try:
            self._begin()
            if (trace := Trace.from_environment(self._run)) is not None:
                self._trace = self._listening.enter_context(trace)
            yield
            self._end()
            if self._trace is not None:
                self._trace.end()
        finally:
            # Left by a break or an error: no collective, and whoever comes next may have the directory.
            self._listening.close()
            if self._saver is not None:
                self._saver.release()
                self._saver = None

    def _begin(self) -> None:
        """Everything is prepared and kept by now."""
        self._behind_the_loop = False  # a loop before may have been left there
        self._listening.enter_context(self._watch.listening())
        if self._run.directory is not None and self._run.is_main:
            self._run.directory.listening.touch()
            self._listening.callback(self._run.directory.listening.unlink, missing_ok=True)
        wanted = self._options.directory
        directory = Path(wanted) if wanted is not None else None
        if directory is None and self._run.directory is not None:
            directory = self._run.directory.path / "snapshots"
        if directory is None or not self._run.strategy.snapshots:
            return
        self._saver = Saver(
            directory,
            self._run.world,
            keep=self._options.keep,
            asynchronous=self._options.asynchronous,
        )
        for optimizer in self._run.optimizers:
            if hasattr(optimizer, "register_step_pre_hook"):
                hook = optimizer.register_step_pre_hook(self._before_step)
                self._listening.callback(hook.remove)
        if not self._begun:  # a second loop goes on where the first one ended
            self._begun = True
            found = self._saver.newest()
            if found is not None:
                self._resume(found)
        self._saved_at = time.monotonic()

    def step_done(self) -> None:
        """Between two steps."""
        self._run.steps_done += 1
        if self._trace is not None:
            self._trace.step()
        if self._watch.requested():
            self.leave()
        elif self._watch.save_agreed() or (self._unit == "step" and self._run.steps_done % self._count == 0):
            self._save()

    def asked(self, steps: int | None) -> Iterator[bool]:
        """For an evaluation of ``steps`` global batches: each ``next`` asks whether to ``leave``.

        One that stands in the middle of a training step is not interrupted.
        """
        for _ in range(steps or 0):
            yield self._watch.requested() and self._run.batch is None

    def epoch_trained(self, *, alone: bool = False) -> None:
        """The epoch's batches are through, and what stands behind the inner loop begins. ``alone``: after a break or an
        error, of which other ranks may know nothing."""
        if self._saver is not None:
            self._saver.hold(self._run.steps_done, self._state(alone=alone))
        self._behind_the_loop = True

    def epoch_done(self) -> None:
        """What stands behind the inner loop is through as well; the position is that of the next epoch."""
        self._behind_the_loop = False
        self._epochs_since += 1
        warn_unused(self._run)
        if self._watch.requested():
            self.leave()
        elif self._unit == "epoch" and self._epochs_since >= self._count:
            self._save()

    def save_now(self) -> None:
        if self._saver is not None:
            self._save()
            self._saver.wait()

    def _end(self) -> None:
        """After the last epoch: its state is saved, so that a run that is done begins no epoch again."""
        if self._saver is not None:
            if self._unit:
                self._save()
            self._saver.close()
            self._saver = None

    # ------------------------------------------------------------------ inside

    def _resume(self, found: Found) -> None:
        run = self._run
        state.check(run, found.facts)
        outline = found.outline()
        tensors = {
            str(index): by_name.target(run.strategy, model, optimizer, outline.get(str(index), {}))
            for index, (model, optimizer) in enumerate(run.prepared)
        }
        found.load_tensors(tensors, partial=run.strategy.name == "pp")
        state.restore(run, tensors, found.own(), found.first_own()["kept"], found.facts, found.taken_over)
        self._saved = self._where()
        positions = ", ".join(f"epoch {p['at'][0] + 1}, step {p['at'][1]}" for p in found.facts["positions"])
        run.print(f"resumed from {found.path.name}: {positions}")

    def _before_step(self, *_: object) -> None:
        """An optimizer is about to change its moments, which a save may still be copying."""
        if self._saver is not None:
            self._saver.settle()

    def _state(self, *, alone: bool = False) -> State:
        run = self._run
        # What was kept is the same everywhere: one copy is enough, on each node where directories are not shared.
        taken = state.collect(run, kept=run.world.local_rank == 0)
        if run.buffers_differ and run.replicas > 1 and not alone:
            # Ours are among what is this rank's own. For whoever cannot take that (other ranks, an export): the mean.
            for index, (model, _) in enumerate(run.prepared):
                means = {id(buffer): value for buffer, value in buffers.united(model, run.world.world_size)}
                whole = taken.tensors[str(index)]["model"]
                for name, buffer in model.named_buffers(remove_duplicate=False):
                    if name in whole:
                        whole[name] = means[id(buffer)]
        return taken

    def _where(self) -> object:
        return self._run.steps_done, [feed.position.resume() for feed in self._run.feeds]

    def _save(self) -> None:
        if self._saver is None or self._saved == self._where():
            return
        self._saver.save(self._run.steps_done, self._state())
        self._saved = self._where()
        self._saved_at = time.monotonic()
        self._epochs_since = 0

    def leave(self) -> NoReturn:
        """Save what there is, and end the process well."""
        saver = self._saver
        if saver is not None:
            if self._behind_the_loop and saver.holds:
                saver.save_held()
            else:
                self._save()
            saver.close()
        self._run.print(f"stopped as asked after step {self._run.steps_done}")
        raise SystemExit(0)

    def _takes(self) -> float | None:
        whole = self._saver.seconds.whole if self._saver is not None else None
        return None if whole is None else CAUTION * whole + LEAVING_S

    def _time_is_up(self) -> bool:
        """Rank 0's clock; all ranks hear of it when they next agree."""
        return self._unit == "s" and time.monotonic() - self._saved_at >= self._count
