"""``records/rank-R.jsonl``: once a second, what this rank does, and the sums of what it has done.

The loop only sets attributes. A thread writes them, so that a rank that waits for data or for other ranks goes on to
tell it, and that a slow file system delays no step. It makes no call to a GPU: another thread may capture a CUDA graph.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import torch

from rankup.runtime.records.arrival import Arrival, arrival_of

# Seconds between records: a day's file is as small as the first three hours'.
EARLY, LATE, EARLY_UNTIL = 1.0, 10.0, 3600.0
_NEVER = float("-inf")


class RankRecords:
    """Of one rank in one loop. The attributes that are times are readings of ``time.perf_counter``."""

    def __init__(self, path: Path, rank: int, world_size: int, device: torch.device, training: str) -> None:
        self.asked = self.got = self.trained = _NEVER  # for a batch, a batch, after the inner loop
        self.samples = 0  # of this rank
        self.loss: float | None = None
        self.loss_due = _NEVER
        self._path = path
        self._device = device
        self._world_size = world_size
        self._about = {
            **{"rank": rank, "world_size": world_size, "host": os.uname().nodename, "pid": os.getpid()},
            **{"gpu": gpu_name(device), "training": training},
        }
        self._arrival: Arrival | None = None
        self._began = _NEVER  # the step in progress
        self._before_steps, self._before_s = 0, 0.0
        # What is told of finished steps is replaced as a whole: global_step, steps, seconds, data_s, samples, and of
        # the steps whose arrival is known their number and their seconds before it.
        self._done: tuple[int, int, float, float, int, int, float] = (0, 0, 0.0, 0.0, 0, 0, 0.0)
        self._steps = 0
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._write_until_over, name="rankup-rank-records", daemon=True
        )

    def begin(self, models: list[torch.nn.Module], global_step: int) -> None:
        """The loop begins. If the file cannot be made, there are no records."""
        if self._world_size > 1:
            self._arrival = arrival_of(models, self._device)
        self._done = (global_step, *self._done[1:])
        self.asked = time.perf_counter()
        with contextlib.suppress(OSError):
            _make(self._path)
            self._thread.start()

    def begin_steps(self, now: float) -> None:
        """The clock of the training goes on."""
        self.asked = self._began = now

    def step_done(self, now: float, global_step: int, seconds: float, data_s: float) -> None:
        """``seconds`` and ``data_s`` of this loop."""
        self._steps += 1
        if self._arrival is not None:
            before = self._arrival.take(self._began, now)
            if before is not None:
                self._before_steps += 1
                self._before_s += before
        self._began = now
        self._done = (
            *(global_step, self._steps, seconds, data_s, self.samples),
            *(self._before_steps, self._before_s),
        )

    def end(self) -> None:
        """The loop is over, or was left."""
        if self._arrival is not None:
            self._arrival.close()
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

    # ------------------------------------------------------------------ inside

    def _write_until_over(self) -> None:
        began = time.perf_counter()
        try:
            while not self._over.wait(EARLY if time.perf_counter() - began < EARLY_UNTIL else LATE):
                self._write(*self._phase())
            self._write("ended", 0.0)
        except OSError:  # the disk is full, or the run directory is gone: the training is worth more
            return

    def _phase(self) -> tuple[str, float]:
        """What this rank does, and for how many seconds."""
        arrived = self._arrival.at if self._arrival is not None else _NEVER
        reached = (
            (self.asked, "data"),
            (self.got, "step"),
            (arrived, "arrived"),
            (self.trained, "after-epoch"),
        )
        since, phase = max(reached)
        return phase, max(0.0, time.perf_counter() - since)

    def _write(self, phase: str, phase_s: float) -> None:
        global_step, steps, seconds, data_s, samples, before_steps, before_s = self._done
        record = {
            **{"kind": "rank", "time": round(time.time(), 3), **self._about},
            **{"phase": phase, "phase_s": round(phase_s, 3), "global_step": global_step},
            **{"steps": steps, "seconds": round(seconds, 4), "data_s": round(data_s, 4), "samples": samples},
            **{"before_steps": before_steps, "before_s": round(before_s, 5), "loss": self.loss},
            **{"cpu_s": round(time.process_time(), 3), "memory_bytes": resident_bytes()},
        }
        line = json.dumps(record).encode() + b"\n"
        # Not held open: a deleted file is noticed, and a network file system shows each line.
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, line)
        finally:
            os.close(file)


def _make(path: Path) -> None:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":  # a rank was killed in the middle of a line
            os.write(file, b"\n")
    finally:
        os.close(file)


def gpu_name(device: torch.device) -> str | None:
    """NVML's name of a GPU (its UUID), which is the same in all processes, whatever GPUs they see."""
    if device.type != "cuda":
        return None
    uuid: Any = getattr(torch.cuda.get_device_properties(device), "uuid", None)  # torch 2.4 or newer
    return None if uuid is None else f"GPU-{uuid}"


def resident_bytes() -> int | None:
    """Memory of this process; None if the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
