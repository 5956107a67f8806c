"""Single keys, if standard input is a terminal; else none ever comes."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator

_ARROWS = {"\x1b[A": "k", "\x1b[B": "j", "\x1b[5~": "K", "\x1b[6~": "J"}


class Keyboard:
    """``keys`` waits for them. A context manager: the terminal echoes nothing meanwhile."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self.there = False

    def __enter__(self) -> Keyboard:
        with contextlib.suppress(ImportError, OSError, ValueError):
            if sys.stdin.isatty():
                self._be_quiet(sys.stdin.fileno())
                self.there = True
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _be_quiet(self, terminal: int) -> None:
        import termios
        import tty

        before = termios.tcgetattr(terminal)
        self._stack.callback(termios.tcsetattr, terminal, termios.TCSADRAIN, before)
        tty.setcbreak(terminal)  # Ctrl-C still interrupts

    def keys(self, seconds: float) -> Iterator[str]:
        """The keys that are pressed within so many seconds; ends with the first ones."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if not self.there:
                time.sleep(left)
                return
            ready, _, _ = select.select([sys.stdin], [], [], left)
            if not ready:
                return
            typed = os.read(sys.stdin.fileno(), 64).decode(errors="replace")
            if not typed:  # the terminal is gone
                self.there = False
                continue
            if typed in _ARROWS:
                yield _ARROWS[typed]
            elif typed == "\x1b":
                yield "escape"
            elif not typed.startswith("\x1b"):
                yield from typed
            return
