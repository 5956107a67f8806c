"""Runs as they would have recorded themselves, for tests of what is concluded from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankup.scale.grid import Trial
from rankup.scale.machine import Machine
from rankup.scale.measured import Measured

IDLE = Machine("node1", "Linux", "3.12.0", cpu_count=8, cpus=tuple(range(8)), load=0.1)


def run(processes: int, seconds: float = 10.0, *, repeat: int = 1, steps: int = 23, **facts: Any) -> Measured:
    """A whole run of ``processes`` with one thread each on a CPU; ``facts`` replace what its summary says."""
    summary = {
        "workload": "rankup.workloads.mnist_cnn:MnistCnn",
        "name": "mnist-cnn",
        "data": "digits",
        "epochs": 1,
        "global_batch": 64,
        "precision": "fp32",
        "optimizer": "adam",
        "lr": 0.001,
        "gamma": 0.7,
        "seed": 0,
        "settings": {},
        "world_size": processes,
        "nodes": 1,
        "device": "CPU",
        "device_type": "cpu",
        "threads": 1,
        "torch": "2.13.0",
        "train_seconds": seconds,
        "samples": 1437,
        "test_samples": 360,
        "test_accuracy": 0.95,
        **facts,
    }
    path = Path(f"runs/mnist-cnn/{processes}-{repeat}")
    return Measured(Trial(processes, repeat), summary, steps, path)


def repeats(processes: int, *seconds: float, **facts: Any) -> list[Measured]:
    """One run for each of ``seconds``."""
    return [run(processes, s, repeat=i, **facts) for i, s in enumerate(seconds, 1)]
