"""One process on our terminal: a debugger works as if nothing stood between, and the logs are kept all the same.

The process has our terminal as its input, in our session, so that line editing and Ctrl-C are the terminal's own.
What it prints goes through a pseudo-terminal (a pipe where we ourselves are redirected) and is copied, byte for
byte, to our output and to ``rank-0.out`` and ``rank-0.err``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from rankup.core import shell
from rankup.core.elapsed import Elapsed
from rankup.core.whole_lines import Line
from rankup.run.failure import Exit
from rankup.run.view import open_log


class TerminalOutput:
    """Stands in for ``Output`` where the only process of a job has the terminal."""

    def __init__(self, logs: Path) -> None:
        self.exits: list[Exit] = []
        self.running: dict[int, int] = {}
        self.restarts = self.attempt = 0
        self.muted = False  # the process itself answers a Ctrl-C
        self._logs = logs
        self._whole = open_log(logs)  # of both streams, as they were shown
        self._copies: dict[int, tuple[int, BinaryIO]] = {}  # what we read → where it is shown, and the log
        self._process: shell.Process[bytes] | None = None
        self._line = Line()  # of our terminal, which the process may leave unfinished
        self._silence = _Silence(logs.parent / "records" / "steps.jsonl")

    def start(self, argv: Sequence[str], env: Mapping[str, str], folder: Path) -> shell.Process[bytes]:
        out, err = self._channel(sys.stdout.fileno(), "out"), self._channel(sys.stderr.fileno(), "err")
        try:
            self._process = shell.start(
                argv, env=env, cwd=folder, stdout=out, stderr=err, die_with_parent=True
            )
        finally:
            os.close(out)
            os.close(err)
        return self._process

    def wait(self, seconds: float) -> None:
        """Until something was printed, at most ``seconds``: what is typed has to be echoed at once."""
        if self._copies:
            select.select(list(self._copies), [], [], seconds)
        else:
            time.sleep(seconds)

    def poll(self) -> None:
        self._silence.tick()
        while self._copies:
            ready, _, _ = select.select(list(self._copies), [], [], 0)
            if not ready:
                return
            for source in ready:
                self._copy(source)

    def finish(self) -> None:
        self.poll()
        self._silence.end()
        if self._line.unfinished:
            self._show(b"\n", sys.stderr.fileno())
        for source in list(self._copies):
            self._close(source)
        if self._whole is not None:
            os.close(self._whole)
        if self._process is not None:
            self.exits.append(Exit(0, self._process.returncode, time.time()))

    def _channel(self, shown: int, stream: str) -> int:
        if os.isatty(shown):
            source, sink = os.openpty()
            attributes = termios.tcgetattr(sink)
            attributes[1] &= ~termios.OPOST  # our own terminal turns line ends into what it needs
            termios.tcsetattr(sink, termios.TCSANOW, attributes)
            fcntl.ioctl(sink, termios.TIOCSWINSZ, fcntl.ioctl(shown, termios.TIOCGWINSZ, bytes(8)))
        else:
            source, sink = os.pipe()
        self._copies[source] = (shown, (self._logs / f"rank-0.{stream}").open("ab", buffering=0))
        return sink

    def _copy(self, source: int) -> None:
        shown, log = self._copies[source]
        try:
            data = os.read(source, 65536)
        except OSError:  # Linux: the other end of a pseudo-terminal is closed
            data = b""
        if not data:
            self._close(source)
            return
        with contextlib.suppress(OSError):  # a full disk
            log.write(data)
            if self._whole is not None:
                os.write(self._whole, data)
        self._show(data, shown)

    def _show(self, data: bytes, shown: int) -> None:
        if os.isatty(shown):
            self._silence.end()
            self._line.take(data.decode("latin-1"))
        while data:
            try:
                data = data[os.write(shown, data) :]
            except OSError:  # the terminal was closed, or a reader
                return

    def _close(self, source: int) -> None:
        _, log = self._copies.pop(source)
        log.close()
        os.close(source)


class _Silence:
    """Tells on our terminal for how long nothing was printed: torch takes seconds to be imported. It ends with the
    first output, and when a training begins (``records``), which has a bar of its own."""

    def __init__(self, records: Path) -> None:
        self._records = records
        self._elapsed = Elapsed("started, nothing printed yet")

    def tick(self) -> None:
        with contextlib.suppress(OSError):  # no training yet
            if self._records.stat().st_mtime >= self._elapsed.since:
                self.end()
        self._elapsed.tick()

    def end(self) -> None:
        self._elapsed.end()
