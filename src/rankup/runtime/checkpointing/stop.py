"""``rankup.should_stop()``: whether this run was asked to stop. The same answer on every rank.

A request is the file ``STOP`` in the run directory, which rank 0 looks for at most once a second; or SIGTERM or SIGUSR1
to any rank, while a loop of ``run.steps`` listens for them. The ranks agree every ``k`` steps. Rank 0 chooses ``k``
from the time of a step, for about one agreement per second: a collective in every step would cost more than the step of
a small model. If steps become four times slower, an agreement still comes within four seconds.

A rank that stops ends with code 0. Rank 0 writes into the run's ``outcome`` that the training is not finished: the
job's script, or ``rankup run``, reads it after all ranks have ended with code 0.
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
MOST_CALLS = 4096
_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class StopWatch:
    """Call ``requested`` at the same points on every rank; once True, it stays True."""

    def __init__(
        self, run_dir: RunDir | None, rank: int, control: Control | None, *, signalled: bool = False
    ) -> None:
        self._run_dir = run_dir
        self._rank = rank
        self._control = control
        self._stop = False
        self._signalled = signalled
        self._looked = float("-inf")
        self.calls_left = 0  # until the next agreement
        self.on_signal: Callable[[], None] = lambda: None  # of a process that is alone, and need not agree
        self._every = 1
        self._agreed_at = time.monotonic()
        # How long stopping takes, in seconds; None if that is not measured yet: then stop at once.
        self.takes: Callable[[], float | None] = lambda: None
        self.save_due: Callable[[], bool] = lambda: False  # called on rank 0 only
        self._save = False

    def requested(self, calls: int = 1) -> bool:
        """``calls``: how many steps have passed since it was asked last."""
        self.calls_left -= calls
        alone = self._control is None and self._signalled
        if not self._stop and (self.calls_left <= 0 or alone):
            self._agree()
        if self._stop and self._rank == 0 and self._run_dir is not None:
            self._run_dir.write_outcome(
                "requeue", {"outcome": "requeue", "stop": self._run_dir.stop_request()}
            )
        return self._stop

    @property
    def stopping(self) -> bool:
        """Whether all ranks have agreed to stop."""
        return self._stop

    def unheard(self) -> bool:
        """Whether a signal came that no agreement has answered."""
        return self._signalled and not self._stop

    def save_agreed(self) -> bool:
        """Whether a save was due at the last agreement; True once, in the same call on all ranks."""
        agreed, self._save = self._save, False
        return agreed

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """While inside, SIGTERM and SIGUSR1 are requests to stop. The handler only sets a flag, since the code that it
        interrupts may hold a lock. Only the main thread can listen; in other threads this does nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handler(signum: int, frame: FrameType | None) -> None:
            self._signalled = True
            if self._control is None:
                self.on_signal()

        before = {number: signal.signal(number, handler) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, previous in before.items():
                signal.signal(number, previous if previous is not None else signal.SIG_DFL)

    def _asked(self) -> bool:
        """Whether this rank has a request that is due."""
        one_looks_for_all = self._control is not None
        if self._signalled or self._run_dir is None or (one_looks_for_all and self._rank != 0):
            return self._signalled
        now = time.monotonic()
        if now - self._looked < AGREE_EVERY_S:
            return False
        self._looked = now
        return _due(self._run_dir.stop_request(), self.takes())

    def _agree(self) -> None:
        """Whether to stop; and by rank 0 alone, whether to save, and the calls until the next agreement."""
        asked, save, every = self._asked(), False, 0
        if self._rank == 0 or self._control is None:
            now = time.monotonic()
            per_call = max((now - self._agreed_at) / self._every, 1e-6)
            save = self.save_due()
            every = max(1, min(int(AGREE_EVERY_S / per_call), 4 * self._every, MOST_CALLS))
            self._agreed_at = now
        if self._control is not None:
            asking, saving, calls = self._control.add("the check for a request to stop", asked, save, every)
            asked, save, every = asking > 0, saving > 0, int(calls)
        self._stop, self._save = asked, save
        self._every = self.calls_left = every


def _due(request: str | None, takes: float | None) -> bool:
    """Whether to stop now: at once, unless the time limit leaves more time than stopping takes."""
    if request is None:
        return False
    reason, _, until = request.partition(" ")
    if reason != "time-limit" or takes is None or not until.strip().isdecimal():
        return True
    return time.time() >= int(until) - takes


_watch: StopWatch | None = None  # of the run that began last


def watch(run_dir: RunDir | None, rank: int, control: Control | None) -> StopWatch:
    """Sets what ``should_stop`` of this process reads from now on; ``rankup.init`` calls it. A signal that came as the
    training before was about to end, between two agreements, is a request to this one."""
    global _watch
    unheard = _watch is not None and _watch.unheard()
    _watch = StopWatch(run_dir, rank, control, signalled=unheard)
    return _watch


def should_stop() -> bool:
    """True once a stop was requested. Call it between steps, on all ranks; most calls cost nothing.

    Without ``rankup.init()`` each process looks for itself, and the ranks of a script must agree by themselves.
    """
    current = _watch or watch(RunDir.from_environment(), World.detect().rank, None)
    return current.requested()
