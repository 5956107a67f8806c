"""One process at a time: a lock that says who holds it, and does not wait."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from rankup.errors import RankupError

_UNSUPPORTED = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}


@contextlib.contextmanager
def only_one(path: Path, *, busy: str, hint: str) -> Iterator[None]:
    """Hold ``path`` while the body runs. The kernel frees it when the process ends, however it ends.

    Raises RankupError ``in-use`` if another process holds it: ``busy``, a sentence without its end, and who it is.
    A file system without locks lets everybody in.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 1024, 0).decode(errors="replace").strip()
            raise RankupError(
                "in-use", f"{busy}: {holder or 'an unknown process'}", context=str(path), hint=hint
            ) from None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()} since {since}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
