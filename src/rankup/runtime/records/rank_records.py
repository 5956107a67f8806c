"""``records/rank-R.jsonl``: once a second, what this rank does, and the sums of what it has done.

The loop only counts (``step_counts``). A thread writes it, so that a rank that waits for data or for other ranks goes
on to tell it, and that a slow file system delays no step. It makes no call to a GPU: another thread may capture a CUDA
graph.
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

from rankup.runtime.records.step_counts import NEVER, StepCounts

# Seconds between records: a day's file is as small as the first three hours'.
EARLY, LATE, EARLY_UNTIL = 1.0, 10.0, 3600.0


class RankRecords:
    """Of one rank in one loop, which counts in ``counts``."""

    def __init__(
        self, path: Path, rank: int, world_size: int, device: torch.device, training: str, counts: StepCounts
    ) -> None:
        self.trained = NEVER  # when the last inner loop ended
        self.loss: float | None = None
        self._path = path
        self._counts = counts
        self._about = {
            **{"rank": rank, "world_size": world_size, "host": os.uname().nodename, "pid": os.getpid()},
            **{"gpu": gpu_name(device), "training": training},
        }
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._write_until_over, name="rankup-rank-records", daemon=True
        )

    def begin(self) -> None:
        """The loop begins. If the file cannot be made, there are no records."""
        with contextlib.suppress(OSError):
            _make(self._path)
            self._thread.start()

    def end(self) -> None:
        """The loop is over, or was left."""
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
        counts = self._counts
        reached = [(counts.asked, "data"), (counts.got, "step"), (self.trained, "after-epoch")]
        if counts.arrival is not None:
            reached.append((counts.arrival.at, "arrived"))
        since, phase = max(reached)
        return phase, max(0.0, time.perf_counter() - since)

    def _write(self, phase: str, phase_s: float) -> None:
        global_step, steps, seconds, data_s, samples = self._counts.done
        before_steps, before_s = (0, 0.0) if self._counts.arrival is None else self._counts.arrival.known
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
