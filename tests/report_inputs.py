"""Studies and run directories as they would be on disk, for tests of what is shown of them."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankup.scale.report.rows import ReportRow, Spread, rows_of
from rankup.scale.results import Configuration, Epoch, Measured, StudyResults, write_results

NASTY = "<script>alert(1)</script> & $x_1$ \\b{} | ±%#~^ \x1b[31m\u202e"


def write_run(
    folder: Path,
    *,
    steps: int = 100,
    epochs: int = 4,
    seed: int = 0,
    speed: float = 1.0,
    hosts: int = 1,
    gpus: int = 0,
    samples: int = 60,
    outcome: str = "done",
    name: str = "mnist-cnn",
) -> Path:
    """A run directory with ``epochs`` epochs of ``steps`` steps, and ``samples`` samples of each host."""
    records = folder / "records"
    records.mkdir(parents=True)
    noise = random.Random(seed)
    lines, seconds, each = [], 0.0, 0.05 / speed
    for index in range(steps * epochs):
        seconds += each
        epoch, step = divmod(index, steps)
        loss = 2.3 * math.exp(-3 * (index + 1) / (steps * epochs)) + 0.05 * noise.random()
        lines.append(
            {
                "kind": "step", "time": 1000 + seconds, "attempt": 1, "epoch": epoch + 1, "epochs": epochs,
                "step": step + 1, "steps": steps, "global_step": index + 1, "goal": steps * epochs,
                "samples": 64 * (step + 1), "samples_per_s": 64 / each, "data_s": 0.1 * each,
                "seconds": round(seconds, 3), "left": 1.0, "metrics": {"loss": loss, "accuracy": 1 - loss / 3},
            }
        )  # fmt: skip
    (records / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ends: list[dict[str, Any]] = [
        {
            "kind": "epoch", "time": 1000.0 + epoch, "attempt": 1, "epoch": epoch, "epochs": epochs, "steps": steps,
            "global_step": epoch * steps, "samples": 64 * steps, "seconds": steps * each,
            "data_s": 0.1 * steps * each,
            "metrics": {"loss": 2.3 / epoch, "test_loss": 2.4 / epoch, "test_accuracy": 1 - 0.5 / (epoch + seed % 7)},
        }
        for epoch in range(1, epochs + 1)
    ]  # fmt: skip
    ends.append(
        {
            "kind": "summary", "time": 2000.0, "name": name, "data": "digits", "strategy": "ddp", "world_size": 2,
            "nodes": hosts, "threads": 1, "device_type": "cpu", "device": "CPU", "precision": "fp32",
            "global_batch": 64, "torch": "2.9", "train_seconds": seconds, "samples": 64 * steps * epochs,
            "test_accuracy": 0.9,
        }
    )  # fmt: skip
    (records / "epochs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in ends))
    for host in range(hosts):
        sampled = [
            {
                "kind": "sample", "time": 1000.0 + at, "host": f"node{host + 1}",
                "cpu_percent": 60 + 30 * noise.random(), "memory_bytes": 2**31, "network_sent": 10**6,
                "network_received": 10**6,
                "gpus": [
                    {"index": i, "utilization": 80 + 15 * noise.random(), "memory_bytes": 2**33, "power_w": 300.0,
                     "temperature_c": 60}
                    for i in range(gpus)
                ],
            }
            for at in range(samples)
        ]  # fmt: skip
        (records / f"utilization-node{host + 1}.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in sampled)
        )
    (folder / "outcome").write_text(outcome + "\n")
    return folder


def measured(
    processes: int,
    seconds: float,
    repeat: int = 1,
    *,
    nodes: int = 1,
    threads: int = 1,
    samples: int = 60_000,
    **more: Any,
) -> Measured:
    """A run in ten epochs, on CPUs if ``more`` says nothing else."""
    given: dict[str, Any] = {
        "strategy": "none" if processes == 1 else "ddp",
        "device_type": "cpu",
        "accuracy": 0.9 + 0.001 * repeat,
        "loss": 0.3,
        "facts": {"precision": "fp32", "global_batch": 64},
        "epochs": [
            Epoch(n, n * seconds / 10, {"loss": 2.3 / n, "test_accuracy": 0.93 - 0.4 / (n + repeat / 9)})
            for n in range(1, 11)
        ],
        **more,
    }
    return Measured(
        repeat=repeat, seconds=seconds, samples=samples, steps=9_375, nodes=nodes, processes=processes, threads=threads,
        **given,
    )  # fmt: skip


def breakdown(processes: int) -> dict[str, float]:
    compute = 0.04 / processes
    return {
        "data": 0.002,
        "compute": compute,
        "communication": 0.003 * (processes > 1) * processes**0.5,
        "optimizer": 0.001,
    }


def study(counts: Sequence[int] = (1, 2, 4, 8), repeats: int = 3, **more: Any) -> StudyResults:
    """A study of ``counts`` processes that scales a little worse than ideally."""
    configurations = [
        Configuration(
            {"nproc": count},
            [
                measured(
                    count,
                    40 / count**0.85 * (1 + 0.02 * (r - 1)),
                    r,
                    strategy="ddp",
                    breakdown=breakdown(count),
                    **more,
                )
                for r in range(1, repeats + 1)
            ],
        )
        for count in counts
    ]
    machine = {"hostname": "node1", "cpu_count": 16, "python": "3.12.1", "torch": "2.9.0"}
    return StudyResults(
        "mnist-cnn --data fashion-mnist", "strong", configurations, machine, repeats, load_before=0.1
    )


def compared(results: StudyResults) -> list[ReportRow]:
    """Rows with the ratios that the statistics would add."""
    from dataclasses import replace

    rows = rows_of(results)
    base = rows[0]
    out = []
    for row in rows:
        s = [base.seconds.median / one for one in (row.seconds.median, row.seconds.high, row.seconds.low)]
        speedup = Spread(1, 1, 1) if row is base else Spread(*s)
        factor = base.devices / row.devices
        share = Spread(speedup.median * factor, speedup.low * factor, speedup.high * factor)
        out.append(replace(row, speedup=speedup, efficiency=share))
    return out


def write_study(folder: Path, results: StudyResults, **more: Any) -> Path:
    folder.mkdir(parents=True)
    write_results(results, folder / "results.json", **more)
    return folder


def write_ranks(
    folder: Path, world: int, *, seconds: int = 60, slow: Sequence[int] = (), late_data: Sequence[int] = ()
) -> None:
    """Records of ``world`` ranks, 8 on a node, of 4 steps a second.

    100 ms of computation and 5 ms of waiting for data in each; 200 ms of computation on ``slow`` ranks, 50 ms of
    waiting on those of ``late_data``.
    """
    for rank in range(world):
        own, data = (0.2 if rank in slow else 0.1), (0.05 if rank in late_data else 0.005)
        lines = [
            {
                "kind": "rank", "time": 1000.0 + at, "rank": rank, "world_size": world,
                "host": f"node{rank // 8 + 1}", "pid": 100 + rank, "gpu": None, "training": "", "phase": "arrived",
                "phase_s": 0.1, "global_step": 4 * at, "steps": 4 * at, "seconds": float(at), "data_s": 4 * at * data,
                "samples": 128 * at, "before_steps": at, "before_s": at * (own + data), "loss": 1.0,
                "cpu_s": 0.9 * at, "memory_bytes": 2**30,
            }
            for at in range(1, seconds + 1)
        ]  # fmt: skip
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "records" / f"rank-{rank}.jsonl").write_text(text)
