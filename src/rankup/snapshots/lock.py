"""One run at a time per directory: two runs would delete each other's snapshots."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
import warnings
from pathlib import Path

from rankup.errors import RankupError
from rankup.snapshots import disk
from rankup.snapshots.layout import LOCK

_UNSUPPORTED = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}


class Lock:
    """An advisory lock on ``root/.lock``. The kernel releases it when the process ends, however it ends."""

    def __init__(self, root: Path) -> None:
        self._path = root / LOCK
        self._descriptor: int | None = None

    def take(self, patience: float) -> None:
        """Wait at most ``patience`` seconds for the lock: a process that was killed takes a moment to end.

        Raises RankupError ``directory-in-use``, which names the process and the time.
        """
        with disk.explained(self._path):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        # A data loader's worker, forked from this process, must not hold the lock after this process has ended.
        os.register_at_fork(after_in_child=lambda: _close(descriptor, self))
        self._descriptor = descriptor
        deadline = time.monotonic() + patience
        while not self._locked(descriptor):
            if time.monotonic() >= deadline:
                holder = os.pread(descriptor, 1024, 0).decode(errors="replace").strip()
                self.release()
                raise RankupError(
                    "directory-in-use",
                    f"another run already saves to {str(self._path.parent)!r}: {holder or 'an unknown process'}",
                    context=str(self._path),
                    hint="use a different directory for each run, or stop the other run first",
                )
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
            warnings.warn(
                f"{self._path.parent} is on a file system without locks: make sure that only one run saves there",
                stacklevel=2,
            )
        return True


def _close(descriptor: int, lock: Lock) -> None:
    """In a forked child: close the copy of the descriptor, if the parent held the lock at the fork."""
    if lock._descriptor == descriptor:
        lock._descriptor = None
        with contextlib.suppress(OSError):
            os.close(descriptor)
