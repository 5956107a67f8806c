"""Shutdown of a rank: it leaves its groups after success; after an exception it ends at once, without a collective."""

from __future__ import annotations

import atexit
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import torch.distributed as dist

# After an uncaught exception the interpreter must be gone within this many seconds, whatever a communicator's
# thread or another library's non-daemon thread waits for: the launcher ends the other ranks only then.
EXIT_GRACE_S = 5
SETTLE_S = 1.0


def install_clean_shutdown(owned: bool, before: Callable[[], None]) -> None:
    """Install the shutdown of this process. ``owned``: rankup made the process group and destroys it; ``before`` is
    called before that.

    After an exception the other ranks are in a collective that never completes: waiting for them would block all.
    """
    failed = False
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        nonlocal failed
        failed = True
        previous(kind, error, trace)
        sys.stderr.flush()
        quiet = Path(os.devnull).open("w")  # noqa: SIM115  # must outlive this call
        faulthandler.dump_traceback_later(EXIT_GRACE_S, exit=True, file=quiet)

    def leave() -> None:
        before()
        if owned and not failed and dist.is_initialized():
            dist.destroy_process_group()
        settle()

    sys.excepthook = hook
    atexit.register(leave)


def settle() -> None:
    """Wait until no other thread of this process runs.

    A communicator's thread releases its tensors a moment after the collective is done, and needs the interpreter for
    that. If the interpreter ends in this moment, the process aborts ("terminate called without an active exception"),
    and a successful training ends as a failure.
    """
    deadline = time.monotonic() + SETTLE_S
    calm = 0
    while calm < 2 and time.monotonic() < deadline:
        time.sleep(0.005)  # also hands them the interpreter
        calm = 0 if _others_running() else calm + 1


def _others_running() -> bool:
    """Whether a thread beside this one is running or about to; always False where /proc does not tell."""
    mine = str(threading.get_native_id())
    try:
        threads = os.listdir("/proc/self/task")  # noqa: PTH208
    except OSError:
        return False
    for thread in threads:
        try:
            state = Path("/proc/self/task", thread, "stat").read_text().rpartition(") ")[2][:1]
        except OSError:
            continue  # it has ended
        if thread != mine and state == "R":
            return True
    return False
