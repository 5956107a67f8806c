"""One process at a time: a lock that says who holds it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from rankup.core.whole_lines import warn
from rankup.errors import RankupError

_UNSUPPORTED = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}


class Lock:
    """An advisory lock on the file ``path``. The kernel releases it when the process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self, *, code: str, busy: str, hint: str, patience: float = 0.0) -> None:
        """Wait at most ``patience`` seconds for the lock: a process that was killed takes a moment to end.

        Raises RankupError ``code`` if another process holds it: ``busy``, a sentence without its end, and who it is
        since when. A file system without locks lets everybody in, with a warning.
        """
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        # A data loader's worker, forked from this process, must not hold the lock after this process has ended.
        os.register_at_fork(after_in_child=lambda: _close(descriptor, self))
        self._descriptor = descriptor
        deadline = time.monotonic() + patience
        while not self._locked(descriptor):
            if time.monotonic() >= deadline:
                holder = os.pread(descriptor, 1024, 0).decode(errors="replace").strip()
                self.release()
                why = f"{busy}: {holder or 'an unknown process'}"
                raise RankupError(code, why, context=str(self._path), hint=hint)
            time.sleep(0.05)
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()} since {since}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock; harmless if it was never taken."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _locked(self, descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            where = f"{self._path.parent} is on a file system without locks"
            warn(f"{where}: make sure that only one run writes there")
        return True


def _close(descriptor: int, lock: Lock) -> None:
    """In a forked child: close the copy of the descriptor, if the parent held the lock at the fork."""
    if lock._descriptor == descriptor:
        lock._descriptor = None
        with contextlib.suppress(OSError):
            os.close(descriptor)


@contextlib.contextmanager
def only_one(path: Path, *, code: str, busy: str, hint: str) -> Iterator[None]:
    """Hold the lock on ``path`` while the body runs; see ``Lock.take``."""
    lock = Lock(path)
    lock.take(code=code, busy=busy, hint=hint)
    try:
        yield
    finally:
        lock.release()
