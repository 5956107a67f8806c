"""What the sampler of a node costs: CPU seconds per second, as the kernel counts them, over a minute."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from benchmarks.contest import Claim, Result
from benchmarks.machine import cores
from rankup.core import shell

ROUNDS, SECONDS = 6, 10


def run(quick: bool) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "records").mkdir()
        process = shell.start([sys.executable, "-m", "rankup.monitor", folder], stdin=shell.DEVNULL)
        try:
            began = time.monotonic()
            while not (files := list(Path(folder).glob("records/*"))) or not files[0].stat().st_size:
                if process.poll() is not None or time.monotonic() > began + 60:
                    raise SystemExit("the sampler writes nothing")
                time.sleep(0.05)
            start = cpu_seconds(process.pid)
            shares = [share(process.pid) for _ in range(1 if quick else ROUNDS)]
            memory = resident_mib(process.pid)
            [line, *_] = files[0].read_text().splitlines()
        finally:
            process.kill()
            process.wait()
    return Result(
        "monitor",
        "The sampler of a node",
        "% of a core",
        {"cores": cores(), "seconds of a round": SECONDS},
        {"sampler": shares},
        [Claim("the sampler, % of a core", "sampler", None, 1, at_most=True)],
        [
            f"Its start, up to the first sample, took {start:.2f} CPU seconds. It has {memory:.0f} MiB of memory, "
            f"and a sample without GPUs has {len(line)} bytes."
        ],
    )


def share(pid: int) -> float:
    """Percent of a core that the process used in the next ``SECONDS``."""
    used, began = cpu_seconds(pid), time.monotonic()
    time.sleep(SECONDS)
    return 100 * (cpu_seconds(pid) - used) / (time.monotonic() - began)


def cpu_seconds(pid: int) -> float:
    """To the nanosecond: the counts in ``stat`` are ticks of 10 ms."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def resident_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
