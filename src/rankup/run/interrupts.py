"""SIGINT, SIGTERM and SIGHUP as something to ask about, so that the watching loop ends a run in its own order."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """A signal came before any process was started."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


class Interrupts:
    """While entered, signals are counted instead of ending us. In another thread than the main one: does nothing."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.count = 0
        self._before: dict[int, object] = {}

    def check(self) -> None:
        """Raise ``Interrupted`` if a signal has come."""
        if self.first is not None:
            raise Interrupted(self.first)

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for signum in _HANDLED:
                before = signal.getsignal(signum)
                if signum == signal.SIGHUP and before == signal.SIG_IGN:
                    continue  # nohup
                self._before[signum] = before
                signal.signal(signum, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for signum, before in self._before.items():
            signal.signal(signum, before if before is not None else signal.SIG_DFL)  # type: ignore[arg-type]

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self.first is None:
            self.first = signum
        # Who is impatient presses Ctrl-C again. TERM comes twice by itself: PBS sends it to every process of a task,
        # and the shell among these passes its own on.
        if self.count == 0 or signum == signal.SIGINT:
            self.count += 1
