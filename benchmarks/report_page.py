"""How long a report takes: 200 runs × 10,000 records, seconds and peak memory of the whole command."""

from __future__ import annotations

import json
import math
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.contest import Claim, Result
from rankup.core import shell

RUNS, STEPS, EPOCHS, SAMPLES = 200, 7_000, 100, 2_900  # 10,000 records each: 1 per step, epoch and second
# Peak memory of the command and its copies together, ten times a second. A page that they share counts once.
MEASURED = """
import subprocess, sys, psutil
command = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
peak = 0
while True:
    try:
        command.wait(0.1)
        break
    except subprocess.TimeoutExpired:
        total = 0
        top = psutil.Process(command.pid)
        for one in [top, *top.children(recursive=True)]:
            try:
                total += one.memory_full_info().pss
            except psutil.NoSuchProcess:
                pass
        peak = max(peak, total)
print(peak)
sys.exit(command.returncode)
"""


def run(quick: bool) -> Result:
    runs = 20 if quick else RUNS
    seconds, memory = [], []
    with tempfile.TemporaryDirectory() as folder:
        paths = write_runs(Path(folder), runs)
        command = [sys.executable, "-m", "rankup", "report", "--out", f"{folder}/report", *map(str, paths)]
        for _ in range(1 if quick else 3):
            began = time.perf_counter()
            done = shell.run([sys.executable, "-c", MEASURED, *command], timeout=600)
            seconds.append(time.perf_counter() - began)
            if done.code != 0:
                raise SystemExit(f"the report failed with {done.code}:\n{done.err}")
            memory.append(int(done.out.split()[-1]) / 2**30)
        size = (Path(folder) / "report" / "report.html").stat().st_size / 2**20
    return Result(
        "report_page",
        "A report of many runs",
        "s, GiB",
        {"runs": runs, "records of each": STEPS + EPOCHS + SAMPLES},
        {"seconds": seconds, "peak memory (GiB)": memory},
        [
            Claim("report of 200 runs × 10,000 records, seconds", "seconds", None, 20, at_most=True),
            Claim("its peak memory, GiB", "peak memory (GiB)", None, 1, at_most=True),
        ],
        [f"`report.html` has {size:.1f} MiB. Ten runs were written, the others are links to them."],
    )


def write_runs(folder: Path, count: int) -> list[Path]:
    """``count`` run directories; ten differ, so that the files lie in the page cache as those of a finished study."""
    paths = []
    for index in range(count):
        path = folder / "runs" / "bench" / f"{index:03d}"
        (path / "records").mkdir(parents=True)
        (path / "attempts").write_text("1 4711.1@node1 1000000000\n")
        for name in ("steps", "epochs", "utilization-node1"):
            file = path / "records" / f"{name}.jsonl"
            if index < 10:
                file.write_text("".join(json.dumps(one) + "\n" for one in records(name, index)))
            else:
                os.link(folder / "runs" / "bench" / f"{index % 10:03d}" / "records" / file.name, file)
        paths.append(path)
    return paths


def spent(seconds: float) -> dict[str, float]:
    return {"trained": 4 * seconds, "saving": 0.0, "evaluating": 0.0}


def records(name: str, seed: int) -> list[dict[str, object]]:
    noise = random.Random(seed)
    per_epoch = STEPS // EPOCHS
    if name == "steps":
        begin = {"kind": "begin", "time": 1e9, "attempt": 1, "facts": {"world_size": 4}, "spent": spent(0)}
        return [
            begin,
            *({
                "kind": "step", "time": 1e9 + i, "attempt": 1, "epoch": i // per_epoch + 1, "epochs": EPOCHS,
                "step": i % per_epoch + 1, "steps": per_epoch, "global_step": i + 1, "goal": STEPS,
                "samples": 256 * (i % per_epoch + 1), "samples_per_s": 2000.5 + noise.random(), "data_s": 0.01,
                "seconds": 0.414 * i, "left": 0.414 * (STEPS - i), "spent": spent(0.414 * i),
                "metrics": {"loss": 2.3 * math.exp(-i / 3000) + 0.1 * noise.random(), "accuracy": noise.random()},
            }
            for i in range(STEPS)),
        ]  # fmt: skip
    if name == "epochs":
        return [
            {
                "kind": "epoch", "time": 1e9 + i, "attempt": 1, "epoch": i + 1, "epochs": EPOCHS, "steps": per_epoch,
                "samples": 256 * per_epoch, "seconds": 29.0, "data_s": 0.7,
                "spent": spent(29.0 * (i + 1)),
                "metrics": {"loss": 2.3 / (i + 1), "test_accuracy": 1 - 0.5 / (i + 1 + seed)},
            }
            for i in range(EPOCHS)
        ]  # fmt: skip
    return [
        {
            "kind": "sample", "time": 1e9 + i, "host": "node1", "cpu_percent": 50 + 10 * noise.random(),
            "memory_bytes": 2**33, "network_sent": 10**6, "network_received": 10**6,
            "gpus": [
                {"index": g, "utilization": noise.randrange(101), "memory_bytes": 2**34, "power_w": 300.5,
                 "temperature_c": 60}
                for g in range(4)
            ],
        }
        for i in range(SAMPLES)
    ]  # fmt: skip
