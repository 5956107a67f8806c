"""``rankup.should_stop()``: has someone asked this run to stop? The same answer on every rank.

A request is the file ``STOP`` in the run directory. Rank 0 looks for it at most once a second; the ranks agree every
``k`` calls, where rank 0 chooses ``k`` from how fast the calls come, about once a second: a collective in every step
would cost more than the step of a small model.

Whoever is told to stop ends with code 0, as if all were done. That there is more to do is said by rank 0, in the run's
``outcome``: the job's script, or ``rankup run``, reads it when all ranks have ended well.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from rankup.core.rundir import RunDir
from rankup.world import World

AGREE_EVERY_S = 1.0
MOST_CALLS = 64


class StopWatch:
    """Call ``requested`` at the same points on every rank; once true, it stays true."""

    def __init__(self, run_dir: RunDir | None, rank: int, control: dist.ProcessGroup | None) -> None:
        self._run_dir = run_dir
        self._rank = rank
        self._control = control
        self._stop = False
        self._looked = float("-inf")
        self._calls_left = 0
        self._every = 1
        self._agreed_at = time.monotonic()

    def requested(self) -> bool:
        if self._stop or self._run_dir is None:
            return self._stop
        if self._control is None:
            self._stop = self._look()
        elif self._calls_left > 0:
            self._calls_left -= 1
        else:
            self._agree(self._control)
        if self._stop and self._rank == 0:
            self._run_dir.write_outcome(
                "requeue", {"outcome": "requeue", "stop": self._run_dir.stop_request()}
            )
        return self._stop

    def _look(self) -> bool:
        now = time.monotonic()
        if now - self._looked < AGREE_EVERY_S:
            return False
        self._looked = now
        return self._run_dir is not None and self._run_dir.stop_file.exists()

    def _agree(self, control: dist.ProcessGroup) -> None:
        """Rank 0 tells the others (stop?, calls until the next time)."""
        message = torch.zeros(2, dtype=torch.int64)
        if self._rank == 0:
            now = time.monotonic()
            per_call = max((now - self._agreed_at) / self._every, 1e-6)
            # Bounded, since the steps to come may be slower than those before: an evaluation, a larger batch.
            self._every = max(1, min(int(AGREE_EVERY_S / per_call), 4 * self._every, MOST_CALLS))
            self._agreed_at = now
            message[0], message[1] = int(self._look()), self._every
        dist.broadcast(message, src=0, group=control)
        self._stop = bool(message[0])
        self._every = int(message[1])
        self._calls_left = self._every - 1


_watch: StopWatch | None = None


def watch(run_dir: RunDir | None, rank: int, control: dist.ProcessGroup | None) -> None:
    """What ``should_stop`` of this process asks from now on; ``rankup.init`` calls it."""
    global _watch
    _watch = StopWatch(run_dir, rank, control)


def should_stop() -> bool:
    """True once a stop was requested. Call it between steps, on every rank alike; it costs nothing most of the time.

    Without ``rankup.init()`` each process looks for itself, and a script of several ranks must agree on its own.
    """
    if _watch is None:
        watch(RunDir.from_environment(), World.detect().rank, None)
    assert _watch is not None
    return _watch.requested()
