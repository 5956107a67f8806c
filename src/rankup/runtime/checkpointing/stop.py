"""``rankup.should_stop()``: has someone asked this run to stop? The same answer on every rank.

A request is the file ``STOP`` in the run directory, which rank 0 looks for at most once a second; or SIGTERM or SIGUSR1
to any rank, while a loop of ``run.steps`` listens for them. The ranks agree every ``k`` calls, where rank 0 chooses
``k`` from how fast the calls come, about once a second: a collective in every step would cost more than the step of a
small model.

Whoever is told to stop ends with code 0, as if all were done. That there is more to do is said by rank 0, in the run's
``outcome``: the job's script, or ``rankup run``, reads it when all ranks have ended well.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from rankup.core.rundir import RunDir
from rankup.runtime.distributed.control import Control
from rankup.world import World

AGREE_EVERY_S = 1.0
MOST_CALLS = 64
_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class StopWatch:
    """Call ``requested`` at the same points on every rank; once true, it stays true."""

    def __init__(self, run_dir: RunDir | None, rank: int, control: Control | None) -> None:
        self._run_dir = run_dir
        self._rank = rank
        self._control = control
        self._stop = False
        self._signalled = False
        self._looked = float("-inf")
        self._calls_left = 0
        self._every = 1
        self._agreed_at = time.monotonic()
        # How long stopping takes, in seconds; None where nobody has measured it: then there is no time to lose.
        self.takes: Callable[[], float | None] = lambda: None
        self.save_due: Callable[[], bool] = lambda: False  # asked on rank 0 alone
        self._save = False

    def requested(self) -> bool:
        if self._stop:
            return True
        if self._control is None:
            self._stop, self._save = self._asked(), self.save_due()
        elif self._calls_left > 0:
            self._calls_left -= 1
        else:
            self._agree(self._control)
        if self._stop and self._rank == 0 and self._run_dir is not None:
            self._run_dir.write_outcome(
                "requeue", {"outcome": "requeue", "stop": self._run_dir.stop_request()}
            )
        return self._stop

    def save_agreed(self) -> bool:
        """Whether rank 0 found at the last agreement that it is time to save; true once, at one call on all ranks."""
        agreed, self._save = self._save, False
        return agreed

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """While inside, SIGTERM and SIGUSR1 ask to stop. The handler sets a flag and nothing else: whatever it
        interrupts may hold a lock. Only the main thread can listen; elsewhere this does nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handler(signum: int, frame: FrameType | None) -> None:
            self._signalled = True

        before = {number: signal.signal(number, handler) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, previous in before.items():
                signal.signal(number, previous if previous is not None else signal.SIG_DFL)

    def _asked(self) -> bool:
        """Whether this rank knows of a request that is due."""
        one_looks_for_all = self._control is not None
        if self._signalled or self._run_dir is None or (one_looks_for_all and self._rank != 0):
            return self._signalled
        now = time.monotonic()
        if now - self._looked < AGREE_EVERY_S:
            return False
        self._looked = now
        return _due(self._run_dir.stop_request(), self.takes())

    def _agree(self, control: Control) -> None:
        """What all ranks say: (stop?, and by rank 0 alone: save?, calls until the next time)."""
        asked, save, every = self._asked(), 0, 0
        if self._rank == 0:
            now = time.monotonic()
            per_call = max((now - self._agreed_at) / self._every, 1e-6)
            # Bounded, since the steps to come may be slower than those before: an evaluation, a larger batch.
            save = int(self.save_due())
            every = max(1, min(int(AGREE_EVERY_S / per_call), 4 * self._every, MOST_CALLS))
            self._agreed_at = now
        asking, saving, calls = control.add("the check for a request to stop", asked, save, every)
        self._stop = asking > 0
        self._save = saving > 0
        self._every = int(calls)
        self._calls_left = self._every - 1


def _due(request: str | None, takes: float | None) -> bool:
    """Whether to stop now: at once, but for a time limit that leaves longer than stopping takes."""
    if request is None:
        return False
    reason, _, until = request.partition(" ")
    if reason != "time-limit" or takes is None or not until.strip().isdecimal():
        return True
    return time.time() >= int(until) - takes


_watch: StopWatch | None = None


def watch(run_dir: RunDir | None, rank: int, control: Control | None) -> StopWatch:
    """What ``should_stop`` of this process asks from now on; ``rankup.init`` calls it."""
    global _watch
    _watch = StopWatch(run_dir, rank, control)
    return _watch


def should_stop() -> bool:
    """True once a stop was requested. Call it between steps, on every rank alike; it costs nothing most of the time.

    Without ``rankup.init()`` each process looks for itself, and a script of several ranks must agree on its own.
    """
    current = _watch or watch(RunDir.from_environment(), World.detect().rank, None)
    return current.requested()
